"""What this process is."""

#: Whether it fits a model for a command. Nobody meets its estimators, so they need no base classes
#: of scikit-learn, whose import takes a second.
is_fitting_command = False
