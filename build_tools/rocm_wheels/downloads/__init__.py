"""Files over the network: each carried on where it broke off, checked, and shown while it comes.

``download`` fetches one file into a folder of its own, ``identity`` says how it is known again, and
``progress`` shows how far several are.
"""
