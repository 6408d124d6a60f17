package app

import (
	"fmt"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/logfile"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/provider/webhook"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

// makeProviders makes the provider of each notifier of the file.
func makeProviders(f *config.File, secrets *redact.Set) (map[string]provider.Provider, error) {
	all := make(map[string]provider.Provider, len(f.Notifiers))
	for name, n := range f.Notifiers {
		p, err := makeProvider(f, n, secrets)
		if err != nil {
			return nil, fmt.Errorf("notifier %s: %w", name, err)
		}
		all[name] = p
	}
	return all, nil
}

func makeProvider(f *config.File, n config.Notifier, secrets *redact.Set) (provider.Provider, error) {
	switch n.Type {
	case "slack":
		return slack.New(n, secrets, f.Server.AllowPrivate...)
	case "telegram":
		return telegram.New(n, secrets)
	case "webhook":
		return webhook.New(n, secrets, f.Server.AllowPrivate...)
	case "log":
		return logfile.New(n, secrets)
	}
	return nil, fmt.Errorf("type %q is not known to this version", n.Type)
}
