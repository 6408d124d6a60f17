-- +goose Up
-- A callback is stored before it is answered and applied after that: due_at says when a replica that finds it takes it up, since the
-- one that stored it did not come to apply it; null: applied. Its body goes with that. An older replica stores and applies at once.
alter table callback add column body jsonb, add column due_at timestamptz;
create index callback_due on callback (due_at) where due_at is not null;

-- One-time codes that somebody with a token made for a person of the file: whoever hands one in from a chat is that person there.
-- Only the code's hash is kept.
create table invitation (
  hash       bytea primary key,
  user_id    text not null,
  made_by    text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null
);
