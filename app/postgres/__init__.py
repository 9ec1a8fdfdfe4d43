"""PostgreSQL: the tables, the statements, the embedded server. Only the wiring builds what lies here."""
