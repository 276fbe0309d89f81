"""Speed and accuracy of user segments."""
