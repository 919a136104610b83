"""The metadata table: listings, statistics and indexes that Hudi keeps beside a table's data."""
