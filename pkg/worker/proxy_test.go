package worker_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"
)

// line stands between one worker and its database. It reads along and knows which of the store's statements is being
// executed, so that a test can lose exactly the request or exactly the answer that it is about, or cut the worker off:
// for the database that is what kill -9 looks like.
type line struct {
	t      testing.TB
	listen net.Listener
	target string

	mu     sync.Mutex
	faults []*lineFault
	struck map[string]int // faults met, by statement
	seen   map[string]int // statements executed
	last   map[string]int // when a statement was executed last, counted in statements
	count  int
	dead   bool
	ice    chan struct{} // not nil: frozen until it is closed
	busy   int           // connections with a request under way
	conns  map[net.Conn]bool
	serves sync.WaitGroup
}

// commit is the name of what ends a transaction.
const commit = "commit"

// lineFault is one statement to be lost: before it arrives, or its answer after it took place.
type lineFault struct {
	statement string // the name in sql/queries, such as Finish; or commit
	answer    bool   // lose the answer, not the request
	times     int
	die       bool // cut the worker off from then on
}

// newLine returns a line and the address by which the database is reached through it.
func newLine(t testing.TB, database string) (*line, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, listen: listen, target: u.Host, struck: map[string]int{}, seen: map[string]int{}, last: map[string]int{}, conns: map[net.Conn]bool{}}
	l.serves.Go(func() {
		for {
			c, err := listen.Accept()
			if err != nil {
				return
			}
			l.serves.Go(func() { l.serve(c) })
		}
	})
	u.Host = listen.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable") // the line has to read along
	u.RawQuery = q.Encode()
	return l, u.String()
}

func (l *line) close() {
	l.listen.Close()
	l.cut()
	l.serves.Wait()
}

// lose arms a fault.
func (l *line) lose(f lineFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &f)
}

// met is how often a statement was lost.
func (l *line) met(statement string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.struck[statement]
}

// cut ends all connections and lets none come up until heal.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		c.Close()
	}
}

// freeze lets nothing that the worker asks reach the database until thaw, as if its process were stopped. What it has
// asked already runs to its end first: a transaction left open would hold its locks.
func (l *line) freeze() {
	l.mu.Lock()
	l.ice = make(chan struct{})
	l.mu.Unlock()
	end := time.Now().Add(patience)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		l.mu.Lock()
		busy := l.busy
		l.mu.Unlock()
		if busy == 0 {
			tick.Stop()
			return
		}
		if time.Now().After(end) {
			l.t.Fatal("the worker's statements do not end")
		}
	}
}

func (l *line) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ice != nil {
		close(l.ice)
		l.ice = nil
	}
}

// enter begins a request on a connection that has none, and waits for that while the line is frozen.
func (l *line) enter(c *connection) {
	for {
		l.mu.Lock()
		ice := l.ice
		if c.busy || ice == nil {
			if !c.busy {
				c.busy = true
				l.busy++
			}
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		<-ice
	}
}

// leave ends a request.
func (l *line) leave(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.busy {
		c.busy = false
		l.busy--
	}
}

// connection is one connection of the worker; it is busy from a request to the end of its transaction.
type connection struct{ busy bool }

// heal ends everything that was done to the line.
func (l *line) heal() {
	l.thaw()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead, l.faults = false, nil
}

// executed is how often the worker asked for a statement.
func (l *line) executed(statement string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[statement]
}

// asleep says that the worker looked when it has to wake after it did anything else.
func (l *line) asleep() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last["EarliestDue"] > max(l.last["Claim"], l.last["Finish"])
}

func (l *line) strikes(statement string) *lineFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[statement]++
	l.count++
	l.last[statement] = l.count
	for _, f := range l.faults {
		if f.statement == statement && f.times > 0 {
			f.times--
			l.struck[statement]++
			return f
		}
	}
	return nil
}

// add keeps a connection to be cut; false: the line is dead.
func (l *line) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dead {
		l.conns[c] = true
	}
	return !l.dead
}

func (l *line) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

var statementName = regexp.MustCompile(`-- name: (\w+) :`)

func (l *line) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return // the server is being stopped
	}
	defer server.Close()
	for _, c := range []net.Conn{client, server} {
		if !l.add(c) {
			return
		}
		defer l.remove(c)
	}
	hit := make(chan *lineFault, 1)  // what struck; no answer gets through after it
	state := &connection{busy: true} // until the start-up is over
	l.mu.Lock()
	l.busy++
	l.mu.Unlock()
	defer l.leave(state)
	var both sync.WaitGroup
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		l.requests(state, bufio.NewReader(client), server, hit)
	})
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		l.answers(state, bufio.NewReader(server), client, hit)
	})
	both.Wait()
}

func (l *line) requests(state *connection, from *bufio.Reader, to io.Writer, hit chan<- *lineFault) {
	if m, err := readMessage(from, 0); err != nil || send(to, m) != nil { // the start-up message has no type
		return
	}
	prepared := map[string]string{} // statement names of this connection, by what the driver calls them
	for {
		m, err := readMessage(from, 1)
		if err != nil {
			return
		}
		parts := bytes.SplitN(m[5:], []byte{0}, 3)
		statement := ""
		switch {
		case m[0] == 'P' && len(parts) > 1: // parse: the driver's name, the text
			if name := statementName.FindSubmatch(parts[1]); name != nil {
				prepared[string(parts[0])] = string(name[1])
			}
		case m[0] == 'B' && len(parts) > 1: // bind: the portal, the driver's name
			statement = prepared[string(parts[1])]
		case m[0] == 'Q' && string(parts[0]) == commit:
			statement = commit
		}
		l.enter(state)
		if f := l.strikes(statement); f != nil {
			if !f.answer {
				if f.die {
					l.cut()
				}
				return
			}
			hit <- f
		}
		if send(to, m) != nil {
			return
		}
	}
}

func (l *line) answers(state *connection, from *bufio.Reader, to io.Writer, hit <-chan *lineFault) {
	var f *lineFault
	for {
		m, err := readMessage(from, 1)
		if err != nil {
			return
		}
		if f == nil {
			select {
			case f = <-hit:
			default:
			}
		}
		switch {
		case f == nil:
			if m[0] == 'Z' && m[5] == 'I' { // idle, in no transaction
				l.leave(state)
			}
			if send(to, m) != nil {
				return
			}
		case m[0] == 'Z': // ready for the next query: what was asked for is committed
			if f.die {
				l.cut()
			}
			return
		}
	}
}

// readMessage reads one message: a type of the given length, four bytes of length, the rest.
func readMessage(from *bufio.Reader, typ int) ([]byte, error) {
	head := make([]byte, typ+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	m := make([]byte, typ+int(binary.BigEndian.Uint32(head[typ:])))
	copy(m, head)
	_, err := io.ReadFull(from, m[typ+4:])
	return m, err
}

func send(to io.Writer, m []byte) error {
	_, err := to.Write(m)
	return err
}
