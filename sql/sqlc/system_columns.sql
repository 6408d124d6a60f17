-- Read by sqlc and by nothing else: it does not know the columns that every table has by itself.
alter table delivery add column ctid tid;
