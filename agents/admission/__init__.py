"""The admission server: what the carrier `webhook` adds to pods on clusters without MutatingAdmissionPolicy.

Mutations are pure functions from pod to pod, which the stack describes (`mutation`); everything around them is here
too: reading reviews (`review`), patches (`patch`), certificates (`certificates`, `custody`, `tls`, `publication`), the
cached nodes (`nodes`), where what pods choose answers (`endpoints`) and the HTTP server (`server`).
"""
