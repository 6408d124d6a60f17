package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

const (
	maxLine    = 4 << 20          // bytes of one line of a stream
	maxSilence = 50 * time.Second // the server says every 15 seconds that it is there
)

// Listen hears what happens until ctx ends, the stream does, or hear fails. Only topics that one of the patterns takes are heard; none: all.
// after is the id of the last event that was heard; 0 begins with now. It always returns an error: a refusal as *api.Problem.
func (c *Client) Listen(ctx context.Context, topics []string, after int64, hear func(api.LiveEvent) error) error {
	// A connection that only seems to live says nothing, not even that it is still there.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(maxSilence, cancel)
	defer silent.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/events?"+url.Values{"topic": topics}.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream, application/problem+json")
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	long := *c.http
	long.Timeout = 0 // it lasts as long as somebody listens
	resp, err := long.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return fmt.Errorf("ask %s: %w (is the server running, and the address right?)", c.base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return problem(resp, b)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		silent.Reset(maxSilence)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue // the event's name and id are in its data too
		}
		var e api.LiveEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("%s did not send an event as tocsin does: %w", c.base, err)
		}
		if err := hear(e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("listen to %s: %w", c.base, err)
	}
	return fmt.Errorf("%s has ended the stream", c.base)
}
