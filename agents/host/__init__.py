"""Prepares one host for shared GPUs and takes it back: `probe`, `configure`, `check`, `restore`.

Runs on the host itself as one file (`agents/host_zipapp.py`) under whatever Python is there, 3.8 or later, with nothing
installed: the standard library and NVIDIA's `pynvml` inside the file. So the code here keeps to Python 3.8.
"""
