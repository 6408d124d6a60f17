package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/pglocal"
)

// DevOptions say how the development environment is made.
type DevOptions struct {
	Dir      string    // where its data lies; empty: [pglocal.DevDir]
	Out      io.Writer // where the addresses are printed
	Quiet    bool      // no sample alert
	Version  string
	Program  string // how people start it, for the commands that are printed; empty: tocsin
	Database string // a migrated, empty database to use instead of a private Postgres
	AnyPorts bool   // free ports instead of the usual ones
	Fetch    bool   // buttons and commands by Socket Mode and polling, instead of over HTTP
	Unpaced  bool   // the chats take messages as fast as they come: for measurements
}

// The usual ports. Where one is taken, a free one is.
const (
	portAPI      = 8811 // and 8812
	portSlack    = 8821
	portTelegram = 8822
	portMetrics  = 8831 // and 8832
)

// replicas is how many instances the development environment runs.
const replicas = 2

// DevEnvironment is two replicas on one database with simulated chats, all on loopback ports.
type DevEnvironment struct {
	Slack    *slacktest.Server
	Telegram *telegramtest.Server
	Replicas []*App
	Token    string // of the scope admin
	Database string // its address
	Dir      string

	postgres *pglocal.Server
	gates    []*chattest.Gate
	files    []io.Closer
	stop     context.CancelFunc
	running  sync.WaitGroup
	ended    chan error // a replica's Run came back
}

// Dev runs the development environment until ctx ends.
func Dev(ctx context.Context, o DevOptions) error {
	e, err := StartDev(ctx, o)
	if err != nil {
		return err
	}
	defer e.Stop()
	if !o.Quiet {
		if err := e.SendSample(ctx); err != nil {
			return err
		}
	}
	e.print(o)
	select {
	case <-ctx.Done():
		fmt.Fprintln(o.Out, "Stopping.")
		return nil
	case err := <-e.ended:
		return errors.Join(errors.New("a replica ended by itself"), err)
	case <-e.postgresDone():
		return errors.New("the private Postgres ended by itself: its log is in " + e.Dir)
	}
}

// StartDev starts everything. Stop it with [DevEnvironment.Stop].
func StartDev(ctx context.Context, o DevOptions) (*DevEnvironment, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Dir == "" {
		dir, err := pglocal.DevDir()
		if err != nil {
			return nil, err
		}
		o.Dir = dir
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil { //nolint:gosec // Postgres runs as another user where we are root
		return nil, fmt.Errorf("make the folder for the development data: %w", err)
	}
	e := &DevEnvironment{Dir: o.Dir, ended: make(chan error, replicas)}
	if err := e.start(ctx, o); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

func (e *DevEnvironment) start(ctx context.Context, o DevOptions) error {
	url, err := e.makeDatabase(ctx, o)
	if err != nil {
		return err
	}
	e.Database = url
	var api, metrics []net.Listener
	for i := range replicas {
		a, err := devListen(portAPI+i, o.AnyPorts)
		if err != nil {
			return err
		}
		m, err := devListen(portMetrics+i, o.AnyPorts)
		if err != nil {
			return err
		}
		api, metrics = append(api, a), append(metrics, m)
		e.files = append(e.files, a, m) // closing twice does no harm
	}
	public := "http://" + api[0].Addr().String()
	secrets := devSecrets{map[string]string{
		"TOCSIN_DEV_DATABASE": url, "SLACK_TOKEN": "xoxb-dev-" + randomWord(), "SLACK_SIGNING_SECRET": "dev-" + randomWord(),
		"TELEGRAM_TOKEN": "110201543:AAH" + randomWord() + randomWord(), "TELEGRAM_SECRET": "dev-" + randomWord(),
		"SLACK_APP_TOKEN": "xapp-dev-" + randomWord(),
	}}
	if err := e.chats(o, public, secrets); err != nil {
		return err
	}
	text, hash := store.MakeToken()
	e.Token = text
	pace := ""
	if o.Unpaced {
		pace = ", pace: off"
	}
	body, err := devFile{Listen: api[0].Addr().String(), Metrics: metrics[0].Addr().String(), Public: public,
		SlackAPI: e.Slack.APIURL(), TelegramAPI: e.Telegram.APIURL(), LogPath: filepath.Join(o.Dir, "alerts.jsonl"), Pace: pace, Fetch: o.Fetch}.text(hash)
	if err != nil {
		return err
	}
	path := filepath.Join(o.Dir, "tocsin.yaml")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		return fmt.Errorf("write the sample file: %w", err)
	}
	logFile, err := os.OpenFile(filepath.Join(o.Dir, "tocsin.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	e.files = append(e.files, logFile)
	return e.run(ctx, o, path, secrets, logFile, api, metrics)
}

// run starts the replicas. They share the file and the process, and nothing else.
func (e *DevEnvironment) run(ctx context.Context, o DevOptions, path string, secrets devSecrets, logFile io.Writer, api, metrics []net.Listener) error {
	set := &atomic.Pointer[redact.Set]{}
	log := NewLog(logFile, set)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	for i := range replicas {
		a, err := New(ctx, Options{Path: path, Env: secrets.lookup, Log: log, Secrets: set, ID: fmt.Sprintf("dev-%d", i+1), Version: o.Version, API: api[i], Metrics: metrics[i]})
		if err != nil {
			return err
		}
		e.Replicas = append(e.Replicas, a)
		e.running.Go(func() {
			err := a.Run(life)
			if err != nil {
				log.Error("a replica ended", zap.String("replica", a.ID()), zap.Error(err))
			}
			e.ended <- err
		})
	}
	for _, a := range e.Replicas {
		if err := awaitReady(ctx, a.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// chats starts the simulated Slack and Telegram; both send their callbacks to the first replica.
func (e *DevEnvironment) chats(o DevOptions, public string, secrets devSecrets) error {
	inSlack := slacktest.Options{Token: secrets.values["SLACK_TOKEN"], SigningSecret: secrets.values["SLACK_SIGNING_SECRET"], InteractionURL: public + "/slack/interactions", CommandURL: public + "/slack/commands"}
	inTelegram := telegramtest.Options{Token: secrets.values["TELEGRAM_TOKEN"], WebhookURL: public + "/telegram/ops-telegram", WebhookSecret: secrets.values["TELEGRAM_SECRET"]}
	if o.Fetch {
		inSlack.AppToken = secrets.values["SLACK_APP_TOKEN"]
		inTelegram.WebhookURL, inTelegram.WebhookSecret = "", ""
	}
	e.Slack, e.Telegram = slacktest.New(inSlack), telegramtest.New(inTelegram)
	for _, c := range []struct {
		port   int
		listen func(string) (*chattest.Gate, error)
	}{{portSlack, e.Slack.Listen}, {portTelegram, e.Telegram.Listen}} {
		gate, err := c.listen(devAddr(c.port, o.AnyPorts))
		if err != nil && !o.AnyPorts {
			gate, err = c.listen(devAddr(0, true))
		}
		if err != nil {
			return err
		}
		e.gates = append(e.gates, gate)
	}
	return nil
}

// makeDatabase gives the address of an empty, migrated database. The simulated chats forget everything when they end, so what
// an earlier run stored would only point at messages that are gone.
func (e *DevEnvironment) makeDatabase(ctx context.Context, o DevOptions) (string, error) {
	if o.Database != "" {
		return o.Database, nil
	}
	pg, err := pglocal.Start(ctx, pglocal.Options{Dir: filepath.Join(o.Dir, "postgres"), Progress: o.Out})
	if err != nil {
		return "", err
	}
	e.postgres = pg
	const name = "tocsin"
	if err := pg.DropDatabase(ctx, name); err != nil {
		return "", err
	}
	if err := pg.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	return pg.URL(name), store.Migrate(ctx, pg.URL(name))
}

// SendSample hands the sample alerts to the first replica, as an Alertmanager would.
func (e *DevEnvironment) SendSample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL()+"/v1/alertmanager", strings.NewReader(devSample))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+e.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send the sample alert: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return fmt.Errorf("the sample alert was refused: %s: %s", resp.Status, b)
	}
	return nil
}

// URL is the address of the first replica's API.
func (e *DevEnvironment) URL() string { return "http://" + e.Replicas[0].Addr() }

// Stop ends everything, in the order that loses nothing: the replicas finish what they are doing while the chats and
// the database still answer. It may be called again.
func (e *DevEnvironment) Stop() {
	if e.stop != nil {
		e.stop()
	}
	e.running.Wait()
	for _, g := range e.gates {
		_ = g.Close()
	}
	for _, f := range e.files {
		_ = f.Close()
	}
	if e.postgres != nil {
		e.postgres.Stop()
	}
}

func (e *DevEnvironment) postgresDone() <-chan struct{} {
	if e.postgres == nil {
		return nil
	}
	return e.postgres.Done()
}

func (e *DevEnvironment) print(o DevOptions) {
	program := o.Program
	if program == "" {
		program = "tocsin"
	}
	first, second := e.Replicas[0], e.Replicas[1]
	fmt.Fprintf(o.Out, `
tocsin runs: two replicas on one private Postgres, a simulated Slack and a simulated Telegram.

  Slack      %-28s the card, its thread, the page; press Acknowledge
  Telegram   %-28s the same there
  API        %-28s and http://%s; described at /openapi.json
  Metrics    http://%s/metrics and http://%s/metrics
  Database   psql '%s'
  File       %s
  Log        %s
`, e.Slack.URL()+"/", e.Telegram.URL()+"/", e.URL(), second.Addr(), first.MetricsAddr(), second.MetricsAddr(),
		e.Database, filepath.Join(e.Dir, "tocsin.yaml"), filepath.Join(e.Dir, "tocsin.log"))
	fmt.Fprintf(o.Out, `
Try, in another terminal:

  export TOCSIN_SERVER=%s TOCSIN_TOKEN=%s
  %[3]s incidents list
  %[3]s alert send --kind disk_full --criticality critical --job web --title "Disk of web-1 is full" --label host=web-1
  %[3]s deliveries list
  %[3]s oncall
  %[3]s users list

Dee Okafor is new: nobody knows her accounts. Press a button as Dee in either chat and do what it says, or begin here:

  %[3]s users link --user dee

Ctrl-C stops all of it.
`, e.URL(), e.Token, program)
}

func devAddr(port int, free bool) string {
	if free {
		port = 0
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// devListen opens the usual port, or a free one where it is taken.
func devListen(port int, free bool) (net.Listener, error) {
	l, err := net.Listen("tcp", devAddr(port, free))
	if err != nil && !free {
		l, err = net.Listen("tcp", devAddr(0, true))
	}
	if err != nil {
		return nil, fmt.Errorf("open a port on 127.0.0.1: %w", err)
	}
	return l, nil
}

// awaitReady asks a replica until it says that it is ready.
func awaitReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	said := "it did not answer"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			said = strings.TrimSpace(string(b))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the replica on %s did not become ready: %s", addr, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
