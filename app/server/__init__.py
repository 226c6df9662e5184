"""Runs the jobs of many users on the shared models of one process; imports no Gradio."""
