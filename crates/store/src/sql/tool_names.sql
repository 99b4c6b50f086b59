-- Every tool there is or was; under the lock of lock_tools.sql.
SELECT DISTINCT name FROM tools ORDER BY name
