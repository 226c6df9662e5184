"""Many users who share the models of one process; knows nothing of Gradio."""
