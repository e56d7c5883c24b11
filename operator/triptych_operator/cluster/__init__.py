"""The one door to the API server.

``kinds`` names what is read and written, ``connection`` says where the server is, ``api`` makes
the calls, ``refusals`` turns its answers into errors. Nothing else of the operator opens a
connection to it but kopf's watches, which get their credentials from ``connection`` too.
"""
