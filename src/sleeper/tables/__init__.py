"""Tables: the class `Table`, and a module for each verb."""
