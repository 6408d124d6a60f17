package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"github.com/tocsin-oncall/tocsin/pkg/client"
)

// contextFile names the server that operator verbs ask where neither a flag nor the environment does.
type contextFile struct {
	Server string `yaml:"server"`
	Token  string `yaml:"token"`
}

// remote is the client of the server that the verb is meant for: flags go before the environment, and that before the
// context file. A token is only taken from the same place as the server or from a place that goes before it, so that
// no token travels to a server that it does not belong to.
func (p *program) remote() (*client.Client, error) {
	server, token := p.server, p.token
	if v, ok := p.env("TOCSIN_SERVER"); ok && server == "" {
		server = v
	}
	if v, ok := p.env("TOCSIN_TOKEN"); ok && token == "" {
		token = v
	}
	if server == "" {
		path, c, err := p.readContext()
		if err != nil {
			return nil, err
		}
		if c.Server == "" {
			return nil, usagef("which server? Give --server URL, set TOCSIN_SERVER, or write `server: URL` and `token: T` to %s", path)
		}
		server = c.Server
		if token == "" {
			token = c.Token
		}
	}
	c, err := client.New(server, token)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return c, nil
}

func (p *program) readContext() (path string, c contextFile, err error) {
	path = "tocsin/context.yaml"
	dir, err := os.UserConfigDir()
	if err != nil {
		return path, c, nil //nolint:nilerr // no home: there is no such file
	}
	path = filepath.Join(dir, "tocsin", "context.yaml")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, c, nil
	}
	if err != nil {
		return path, c, fmt.Errorf("read the context file: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
		return path, c, usagef("%s: it should hold `server: URL` and `token: T` and nothing else: %s", path, yaml.FormatError(err, false, false))
	}
	return path, c, nil
}
