"""What the operators' pods would do: pods here are only records, so somebody has to play them.

Each behaviour is a pure function from the observed `World` to a `Decision`; `loop` observes and carries out. The
behaviours follow the GPU Operator v26.7.0, NFD v0.19 and KAI v0.18, whether their official charts or our stand-ins
are installed.
"""
