"""Questions in SQL, the same for every engine that takes it."""

ONE = "select * from t where key = '{}'"
BETWEEN = "select * from t where key >= '{}' and key < '{}' order by key"
COUNT_AND_SUM = "select count(*), sum(n) from t"
