package api

// Link is a titled URL.
type Link struct {
	Title string `json:"title,omitempty" maxLength:"300"`
	URL   string `json:"url" maxLength:"3000" doc:"http or https."`
}

// Alert is a native alert, the body of POST /v1/alerts.
type Alert struct {
	Kind        string            `json:"kind,omitempty" maxLength:"200" doc:"What happened; the topic's second word. Dots and blanks become _. Needed, unless the source's topic says it." example:"disk_full"`
	Criticality string            `json:"criticality,omitempty" maxLength:"200" doc:"critical and high are urgent, everything else is not." example:"critical"`
	Job         string            `json:"job,omitempty" maxLength:"200" doc:"What it happened to; the topic's last word." example:"db"`
	Key         string            `json:"key,omitempty" maxLength:"1000" doc:"Alerts with one key are one incident while it is open. Without it: the route's group_by, else topic and labels."`
	Status      string            `json:"status,omitempty" enum:"firing,resolved" doc:"firing, if not given."`
	Title       string            `json:"title,omitempty" maxLength:"10000" doc:"One line; the kind, if not given." example:"Disk of db-1 is full"`
	Text        string            `json:"text,omitempty" maxLength:"200000"`
	Labels      map[string]string `json:"labels,omitempty" doc:"They tell alerts of one kind apart and are matched by routes."`
	Links       []Link            `json:"links,omitempty" maxItems:"20"`
	Notify      []string          `json:"notify,omitempty" maxItems:"50" doc:"Notifiers that get it besides those of the routes."`
}

// Accepted is the answer to POST /v1/alerts. When it is read, everything that it names is committed.
type Accepted struct {
	AlertID       string             `json:"alert_id,omitempty" doc:"Absent when a resolved alert matched no open incident."`
	IncidentID    string             `json:"incident_id,omitempty"`
	IncidentState string             `json:"incident_state,omitempty"`
	Deliveries    []AcceptedDelivery `json:"deliveries" doc:"All deliveries of the incident that this alert made."`
}

// AcceptedDelivery is one delivery that an alert made.
type AcceptedDelivery struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Notifier string `json:"notifier"`
	State    string `json:"state"`
}

// AcceptedGroup is the answer to a group of alerts, e.g. POST /v1/alertmanager.
type AcceptedGroup struct {
	Incidents []Accepted `json:"incidents" doc:"One per incident that the alerts belong to."`
}
