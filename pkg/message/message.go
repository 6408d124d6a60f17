// Package message is the neutral message: what a person should see, before a provider's dialect and limits.
//
// Every provider renders it within its own limits. Title, severity, state, link and buttons always survive; what
// does not fit becomes "and N more".
package message

// State is the state of the incident that a message shows; it chooses colour and sign.
type State string

// The states with their signs.
const (
	Open         State = "open"         // red 🔴
	Acknowledged State = "acknowledged" // yellow 🟡
	Resolved     State = "resolved"     // green 🟢
	Plain        State = ""             // no colour, no sign: thread replies, notices
)

// Message is one message in neutral form. All its text is plain: no markup of any provider.
type Message struct {
	State    State
	Severity string  // criticality, e.g. "critical"
	Title    string  // one line, without sign
	Text     string  // paragraphs, "\n" between lines
	Fields   []Field // short facts, shown side by side where the provider can
	Items    []Item  // the alerts
	More     int     // how many further items exist that are not in Items
	MoreURL  string  // where all of it can be seen: what "and N more" links to; empty: nowhere
	Links    []Link
	Buttons  []Button
	Footer   string // small print, e.g. "repeat: an earlier attempt may have arrived"
}

// Field is a short fact with its name.
type Field struct{ Name, Value string }

// Item is one alert in a card.
type Item struct {
	Resolved bool
	Title    string
	Detail   string // labels that tell it apart
}

// Link is a titled URL.
type Link struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// Button is an action that a person can take in the chat.
type Button struct {
	Action string // action id: ack, resolve, snooze, escalate
	Label  string
	Value  string // comes back with the press: the incident's id
	Style  string // "primary", "danger" or ""
}

// Sign is the mark at the head of the title in every provider; empty for Plain.
func (s State) Sign() string {
	switch s {
	case Open:
		return "🔴"
	case Acknowledged:
		return "🟡"
	case Resolved:
		return "🟢"
	}
	return ""
}
