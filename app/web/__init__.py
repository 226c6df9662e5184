"""The Gradio page and its HTTP server."""
