package chattest

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Reply is an answer of the chat.
type Reply struct {
	Status int
	Type   string // content type; JSON when empty
	Header map[string]string
	Body   []byte
}

// Exchange is one request on its way through faults and ledger.
type Exchange struct {
	Request Request
	// Act does what the request asks for and gives the true answer. It runs under the core's lock, at most once, and
	// notes the effect on the request. It may rely on nothing having changed since the ledger entry was made only
	// when no fault struck.
	Act func(*Request) Reply
	// Refuse is the answer in the dialect for Limited, Error with JSON, Code and Revoked.
	Refuse func(Fault) Reply
	// Wait, when set, runs before Act without the lock: long polling.
	Wait func(context.Context)
}

// Serve records the request, lets a fault strike, acts and answers. It returns when the client has its answer or will
// never get one.
func (c *Core) Serve(w http.ResponseWriter, r *http.Request, x Exchange) {
	q := &x.Request
	q.HTTP, q.Path = r.Method, r.URL.Path
	q.Params = maps.Clone(q.Params) // the chat may go on changing its own; the ledger's is read without the lock
	c.mu.Lock()
	c.record(q)
	f := c.draw(q)
	if f != nil {
		q.Fault, q.FaultID = f.Kind, f.ID
	}
	c.wake()
	c.mu.Unlock()
	if f == nil {
		f = &Fault{}
	}

	var reply Reply
	acted := false
	act := func() {
		if acted {
			return
		}
		acted = true
		if x.Wait != nil {
			x.Wait(r.Context())
		}
		c.Write(func() { reply = x.Act(q) })
	}
	if f.Happens {
		act()
	}
	switch f.Kind {
	case Reset:
		c.finish(q, 0, reply, false)
		sever(w)
		return
	case Drop:
		act()
		c.finish(q, 0, reply, false)
		sever(w)
		return
	case Hang:
		if !c.released(r.Context(), f.ID) {
			c.finish(q, 0, reply, true)
			sever(w)
			return
		}
		act()
	case Limited, Error, Code, Revoked, Answer:
		reply = c.refusal(x, *f)
	default:
		act()
	}
	send(w, r, c, q, *f, reply)
}

// refusal is the answer that a fault puts in place of the true one.
func (c *Core) refusal(x Exchange, f Fault) Reply {
	var reply Reply
	switch {
	case f.Kind == Answer:
		reply = Reply{Status: or(f.Status, http.StatusOK), Body: []byte(f.Body), Type: "application/json; charset=utf-8"}
	case f.Kind == Error && f.Body != "":
		reply = Reply{Status: or(f.Status, http.StatusInternalServerError), Body: []byte(f.Body), Type: "text/html; charset=utf-8"}
	case f.Kind == Error && !f.JSON:
		status := or(f.Status, http.StatusInternalServerError)
		title := strconv.Itoa(status) + " " + http.StatusText(status)
		reply = Reply{Status: status, Type: "text/html", Body: []byte("<html>\r\n<head><title>" + title +
			"</title></head>\r\n<body>\r\n<center><h1>" + title + "</h1></center>\r\n</body>\r\n</html>\r\n")}
	default:
		reply = x.Refuse(f)
	}
	if reply.Header == nil {
		reply.Header = map[string]string{}
	}
	if f.Kind == Limited {
		if v := f.RetryHeader(); v != "" {
			reply.Header["Retry-After"] = v
		}
	}
	for k, v := range f.Header {
		reply.Header[k] = v
	}
	return reply
}

// RetryHeader is the Retry-After header of a Limited fault; empty means that none is sent.
func (f Fault) RetryHeader() string {
	switch f.RetryAfter {
	case "":
		return "1"
	case "-":
		return ""
	}
	return f.RetryAfter
}

// RetrySeconds is the same as whole seconds for bodies, at least 1, whatever form the header has.
func (f Fault) RetrySeconds(now time.Time) int {
	if n, err := strconv.Atoi(f.RetryAfter); err == nil {
		return max(n, 1)
	}
	if t, err := http.ParseTime(f.RetryAfter); err == nil {
		return max(int(t.Sub(now).Seconds()), 1)
	}
	return 1
}

// released waits until the fault is cleared (true) or the client has left (false).
func (c *Core) released(ctx context.Context, id int) bool {
	return c.Until(ctx, func() bool { return !c.standing(id) }) == nil
}

// finish closes the ledger entry.
func (c *Core) finish(q *Request, status int, reply Reply, left bool) {
	c.Write(func() {
		q.Done, q.Finished, q.Left = true, c.now(), left
		q.Status, q.Answer = status, string(reply.Body)
	})
}

// send writes the answer, whole, slowly or cut. The entry is closed before the last byte leaves, so that a client
// that has its answer finds it in the ledger.
func send(w http.ResponseWriter, r *http.Request, c *Core, q *Request, f Fault, reply Reply) {
	h := w.Header()
	if reply.Type == "" {
		reply.Type = "application/json; charset=utf-8"
	}
	h.Set("Content-Type", reply.Type)
	h.Set("Content-Length", strconv.Itoa(len(reply.Body)))
	for k, v := range reply.Header {
		h.Set(k, v)
	}
	status := or(reply.Status, http.StatusOK)
	flush := http.NewResponseController(w).Flush
	switch f.Kind {
	case Slow:
		w.WriteHeader(status)
		_ = flush()
		tick := time.NewTicker(or(time.Duration(f.Interval), 20*time.Millisecond))
		defer tick.Stop()
		for i := range reply.Body {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				c.finish(q, status, reply, true)
				return
			}
			if i == len(reply.Body)-1 {
				c.finish(q, status, reply, false)
			}
			_, _ = w.Write(reply.Body[i : i+1])
			_ = flush()
		}
		if len(reply.Body) == 0 {
			c.finish(q, status, reply, false)
		}
	case Cut:
		c.finish(q, status, reply, false)
		w.WriteHeader(status)
		_, _ = w.Write(reply.Body[:len(reply.Body)/2])
		_ = flush()
		hangUp(w, false)
	default:
		c.finish(q, status, reply, r.Context().Err() != nil)
		w.WriteHeader(status)
		_, _ = w.Write(reply.Body)
	}
}

// sever breaks the connection with a reset where the server allows it (HTTP/1), else by aborting the handler.
func sever(w http.ResponseWriter) { hangUp(w, true) }

// hangUp ends the connection: with a reset, or in order, so that the client sees the body end too early.
func hangUp(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if n, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = n.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	_ = conn.Close()
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
