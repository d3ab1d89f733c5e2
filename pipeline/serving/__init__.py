"""The HTTP service: typed answers for programs and a page for people, over the builds of one run directory.

    config -> server -> app -> {api, page} -> service -> {admission, encoding, builds}

A request leases the build that serves when it comes, and keeps it to its end. Embedding happens on one
thread, questions before explanations; searching and explaining happen on pools of their own, never on the
event loop.
"""
