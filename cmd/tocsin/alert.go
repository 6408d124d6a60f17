package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func (p *program) alertCommand() *cobra.Command {
	return group("alert", "Send alerts", p.alertSendCommand())
}

func (p *program) alertSendCommand() *cobra.Command {
	var a api.Alert
	var labels, links []string
	var once string
	cmd := &cobra.Command{
		Use:   "send --kind KIND [--criticality C] [--job JOB] [--title TITLE] ...",
		Short: "Hand in an alert, as a program would",
		Long: "Hands in one alert. When the command ends well, the alert is committed and its deliveries are on their way.\n" +
			"Its topic is alert.KIND.CRITICALITY.JOB, which routes match.",
		Example: `  tocsin alert send --kind disk_full --criticality critical --job db --title "Disk of db-1 is full" --label host=db-1
  tocsin alert send --kind disk_full --criticality critical --job db --label host=db-1 --status resolved`,
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			for _, l := range labels {
				name, value, ok := strings.Cut(l, "=")
				if !ok || name == "" {
					return usagef("--label %q is not NAME=VALUE", l)
				}
				if a.Labels == nil {
					a.Labels = map[string]string{}
				}
				a.Labels[name] = value
			}
			for _, l := range links {
				title, url, ok := strings.Cut(l, "=")
				if !ok || strings.Contains(title, "://") {
					title, url = "", l
				}
				a.Links = append(a.Links, api.Link{Title: title, URL: url})
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			got, err := c.SendAlert(cmd.Context(), a, once)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(got)
			}
			p.facts(plain("alert"), plain(got.AlertID), plain("incident"), plain(got.IncidentID), plain("state"), state(got.IncidentState))
			rows := make([][]cell, len(got.Deliveries))
			for i, d := range got.Deliveries {
				rows[i] = []cell{plain(d.ID), plain(d.Kind), plain(d.Notifier), state(d.State)}
			}
			if len(rows) > 0 {
				p.table([]string{"DELIVERY", "KIND", "NOTIFIER", "STATE"}, rows)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&a.Kind, "kind", "", "what happened (needed)")
	f.StringVar(&a.Criticality, "criticality", "", "critical and high are urgent")
	f.StringVar(&a.Job, "job", "", "what it happened to")
	f.StringVar(&a.Key, "key", "", "alerts with one key are one incident while it is open")
	f.StringVar(&a.Status, "status", "", "firing or resolved (default firing)")
	f.StringVar(&a.Title, "title", "", "one line for people")
	f.StringVar(&a.Text, "text", "", "more for people")
	f.StringArrayVar(&labels, "label", nil, "NAME=VALUE; may be given several times")
	f.StringArrayVar(&links, "link", nil, "URL or TITLE=URL; may be given several times")
	f.StringSliceVar(&a.Notify, "notify", nil, "notifiers that get it besides those of the routes")
	f.StringVar(&once, "idempotency-key", "", "sending again with the same key has no second effect")
	_ = cmd.MarkFlagRequired("kind")
	return cmd
}
