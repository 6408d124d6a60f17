package api

import "time"

// OnCall is who is on call in one schedule at the instant asked for.
type OnCall struct {
	Schedule string     `json:"schedule"`
	Users    []Person   `json:"users" doc:"Empty where nobody is on call."`
	Layer    string     `json:"layer,omitempty" doc:"The layer whose turn it is; override, where an override says so."`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
}

// Person names a user of the file.
type Person struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// LinkAccount is the body of POST /v1/users/{id}/link: the one-time code that the chat account's owner was shown.
type LinkAccount struct {
	Code string `json:"code" minLength:"1" maxLength:"100"`
}

// Linked is the answer to POST /v1/users/{id}/link.
type Linked struct {
	UserID    string `json:"user_id"`
	Provider  string `json:"provider"`
	AccountID string `json:"account_id"`
	Applied   string `json:"applied,omitempty" doc:"What became of the button press that asked for the link."`
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
