package api

import "time"

// OnCall is who is on call in one schedule at the instant asked for.
type OnCall struct {
	Schedule string     `json:"schedule"`
	Users    []Person   `json:"users" doc:"Empty where nobody is on call."`
	Layer    string     `json:"layer,omitempty" doc:"The layer whose turn it is; override, where an override says so."`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	// Problems are about everybody who is on call in it within seven days.
	Problems []OnCallProblem `json:"problems,omitempty" doc:"Ways by which people who are on call within seven days can't be reached; only without at."`
	// Calendars are the layers that are imported.
	Calendars []ImportedCalendar `json:"calendars,omitempty" doc:"How it stands with the calendars that layers are imported from; only without at."`
}

// ImportedCalendar is how it stands with the calendar of one layer.
type ImportedCalendar struct {
	Layer     string     `json:"layer"`
	FetchedAt *time.Time `json:"fetched_at,omitempty" doc:"When the copy in force was last found to be what the calendar says. Absent: there is none."`
	Problems  []string   `json:"problems" doc:"What somebody has to mend."`
	Notes     []string   `json:"notes,omitempty" doc:"What is allowed, and perhaps not meant."`
}

// OnCallProblem is a way to a person that leads nowhere.
type OnCallProblem struct {
	User     Person    `json:"user"`
	Via      string    `json:"via,omitempty" doc:"The notifier; absent where the person has no way at all."`
	Reason   string    `json:"reason"`
	Sentence string    `json:"sentence"`
	Since    time.Time `json:"since" doc:"Since when that is known."`
}

// Person names a user of the file.
type Person struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// LinkAccount is the body of POST /v1/users/{id}/link: the one-time code that the chat account's owner was shown. Without a code, one
// is made for the user to hand in from a chat.
type LinkAccount struct {
	Code string `json:"code,omitempty" maxLength:"100"`
}

// Linked is the answer to POST /v1/users/{id}/link.
type Linked struct {
	UserID     string      `json:"user_id"`
	Provider   string      `json:"provider,omitempty"`
	AccountID  string      `json:"account_id,omitempty"`
	Applied    string      `json:"applied,omitempty" doc:"What became of the button press that asked for the link."`
	Invitation *Invitation `json:"invitation,omitempty" doc:"Where the request had no code."`
}

// Invitation is a one-time code: whoever hands it in from a chat is the user there.
type Invitation struct {
	Code      string    `json:"code" doc:"Shown once; only its hash is kept."`
	ExpiresAt time.Time `json:"expires_at"`
	Slack     string    `json:"slack,omitempty" doc:"What to write in Slack."`
	Telegram  []string  `json:"telegram,omitempty" doc:"Links that open a bot of the file with the code."`
}

// User is a person of the file.
type User struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Email    string    `json:"email,omitempty"`
	TimeZone string    `json:"time_zone,omitempty"`
	Contacts []Contact `json:"contacts" doc:"The ways to them, in order."`
	Accounts []Account `json:"accounts" doc:"The chat accounts that are linked to them."`
}

// Contact is one way to a person.
type Contact struct {
	Via     string `json:"via"`
	After   string `json:"after,omitempty" doc:"How long after a page began it is tried."`
	Urgency string `json:"urgency,omitempty"`
	Address string `json:"address" doc:"file, linked, email (looked up when a page needs it), or none."`
	Trouble string `json:"trouble,omitempty" doc:"Why nobody is reached by it now."`
}

// Account is a chat account that is linked to a user.
type Account struct {
	Provider  string    `json:"provider"`
	AccountID string    `json:"account_id"`
	LinkedAt  time.Time `json:"linked_at"`
	LinkedBy  string    `json:"linked_by"`
}

// UnlinkAccount is the body of POST /v1/users/{id}/unlink.
type UnlinkAccount struct {
	Provider  string `json:"provider" enum:"slack,telegram"`
	AccountID string `json:"account_id,omitempty" maxLength:"200" doc:"All of the provider's, if not given."`
}

// Token is an API token without its secret.
type Token struct {
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// NewToken is the body of POST /v1/tokens.
type NewToken struct {
	Name   string   `json:"name" minLength:"1" maxLength:"100" pattern:"^[A-Za-z0-9_.-]+$" doc:"It names the token's owner in the audit trail."`
	Scopes []string `json:"scopes" minItems:"1"`
}

// MadeToken is the answer to POST /v1/tokens. It is the only time that the token is shown.
type MadeToken struct {
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
	Token  string   `json:"token" doc:"Shown once; only its hash is kept."`
}
