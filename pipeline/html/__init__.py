"""Self-contained HTML: the page around a report, and the views that report and service share."""
