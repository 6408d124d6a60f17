// Package api holds the JSON types of tocsin's HTTP interface: what the server writes, the client reads and other
// programs are written against. Names are never renamed and never removed; fields are only added.
//
// Instants are RFC 3339 with offset. A field that has no value yet is left out.
package api

// Scopes of API tokens. Admin includes all others; operate includes read, and read includes calendar.
const (
	ScopeCalendar = "calendar" // read calendars of who is on call; with nothing else the token may stand in a calendar's address
	ScopeIngest   = "ingest"   // send alerts
	ScopeRead     = "read"     // see incidents, deliveries and who is on call
	ScopeOperate  = "operate"  // acknowledge, resolve, decide, link accounts
	ScopeAdmin    = "admin"    // make and revoke tokens
)

// Scopes lists every scope from the smallest to the largest.
var Scopes = []string{ScopeCalendar, ScopeIngest, ScopeRead, ScopeOperate, ScopeAdmin}

// Allows says whether a token with the scopes may do what needs the wanted one.
func Allows(scopes []string, wanted string) bool {
	for _, s := range scopes {
		switch {
		case s == wanted, s == ScopeAdmin, s == ScopeOperate && (wanted == ScopeRead || wanted == ScopeCalendar), s == ScopeRead && wanted == ScopeCalendar:
			return true
		}
	}
	return false
}

// Page bounds of lists.
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// List is one page of a list, newest first. NextCursor is empty on the last page.
type List[T any] struct {
	Items      []T    `json:"items" doc:"Newest first."`
	NextCursor string `json:"next_cursor,omitempty" doc:"Give it back as cursor for the next page; absent on the last one."`
}
