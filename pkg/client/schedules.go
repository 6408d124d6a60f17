package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// Span bounds a question about a schedule. A zero From is now, a zero Until what the server takes for usual.
type Span struct{ From, Until time.Time }

func (s Span) values() url.Values {
	v := url.Values{}
	if !s.From.IsZero() {
		v.Set("from", s.From.Format(time.RFC3339))
	}
	if !s.Until.IsZero() {
		v.Set("until", s.Until.Format(time.RFC3339))
	}
	return v
}

// Shifts are the shifts of a schedule, one per person.
func (c *Client) Shifts(ctx context.Context, schedule string, s Span) (out api.List[api.Shift], err error) {
	err = c.do(ctx, http.MethodGet, inSchedule(schedule, "shifts"), s.values(), nil, nil, &out)
	return out, err
}

// Gaps are the spans in which nobody is on call.
func (c *Client) Gaps(ctx context.Context, schedule string, s Span) (out api.List[api.Gap], err error) {
	err = c.do(ctx, http.MethodGet, inSchedule(schedule, "gaps"), s.values(), nil, nil, &out)
	return out, err
}

// Hours are how long each person is on call.
func (c *Client) Hours(ctx context.Context, schedule string, s Span) (out api.List[api.Hours], err error) {
	err = c.do(ctx, http.MethodGet, inSchedule(schedule, "hours"), s.values(), nil, nil, &out)
	return out, err
}

// Overrides are the overrides of a schedule that are not over, newest first; with ended those that are as well.
func (c *Client) Overrides(ctx context.Context, schedule string, ended bool, q Query) (out api.List[api.Override], err error) {
	v := q.values()
	if ended {
		v.Set("ended", "true")
	}
	err = c.do(ctx, http.MethodGet, inSchedule(schedule, "overrides"), v, nil, nil, &out)
	return out, err
}

// AddOverride puts a person on call for a while.
func (c *Client) AddOverride(ctx context.Context, schedule string, o api.NewOverride) (out api.Override, err error) {
	err = c.do(ctx, http.MethodPost, inSchedule(schedule, "overrides"), nil, nil, o, &out)
	return out, err
}

// EndOverride ends an override before its time. by is a user's id; empty: the token's word.
func (c *Client) EndOverride(ctx context.Context, schedule, id, by string) (out api.Override, err error) {
	v := url.Values{}
	if by != "" {
		v.Set("by", by)
	}
	err = c.do(ctx, http.MethodDelete, inSchedule(schedule, "overrides")+"/"+url.PathEscape(id), v, nil, nil, &out)
	return out, err
}

// Swap lets two people take each other's shift.
func (c *Client) Swap(ctx context.Context, schedule string, s api.NewSwap) (out api.List[api.Override], err error) {
	err = c.do(ctx, http.MethodPost, inSchedule(schedule, "swaps"), nil, nil, s, &out)
	return out, err
}

func inSchedule(id, what string) string { return "/v1/schedules/" + url.PathEscape(id) + "/" + what }
