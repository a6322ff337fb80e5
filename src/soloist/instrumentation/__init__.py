"""Who hears of events, one listener a file. The standard library's logging hears of them without being asked."""
