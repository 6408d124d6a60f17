package slack

import "time"

// Ping sets how often a Socket Mode connection is asked whether it lives.
func (p *Provider) Ping(every time.Duration) { p.ping = every }
