"""SQL over tables: conditions and statements by DataFusion, and datasets for other engines."""
