pytest_plugins = ["cued_testing"]
