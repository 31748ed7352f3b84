"""The public class `Table`: its definition, its rows, and its maintenance."""
