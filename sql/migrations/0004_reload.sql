-- +goose Up
-- What a replica thinks of the file that lies on its disk. Additive: a replica of the version before says nothing.
alter table replica
  add column file_error text not null default '', -- why it keeps an older file than the one on disk; empty: it does not
  add column read_at    timestamptz;              -- when it took its file
-- Tries above a cap that was lowered.
create index delivery_tries on delivery (notifier, tries) where next_at is not null and tries > 0;
