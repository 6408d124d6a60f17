// Package sql holds every statement that tocsin runs: the schema's migrations, the public views among them, and the
// queries from which pkg/store/internal/query is generated.
package sql

import "embed"

// Migrations are the forward-only steps of the schema, in goose's format.
//
//go:embed migrations/*.sql
var Migrations embed.FS
