"""Calls of programs: Gradio's endpoints, POST /v1, and the tools of agents."""
