package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Judge says what the transport alone proves, in the order in which it may be said:
//
//  1. No answer: nothing was made if no byte was written, else nobody knows.
//  2. A redirect is a wrong URL, a 429 made nothing, a 5xx may have made something, whatever their bodies say.
//  3. A 2xx whose body did not come whole is in doubt.
//
// settled is false where the answer's content decides; the result then carries the evidence only.
func (r Record) Judge() (res delivery.Result, settled bool) {
	res = r.evidence()
	switch {
	case !r.Called:
		res.Outcome, res.Evidence = delivery.OutcomeFailed, delivery.NotCalled
		res.Fault, res.Reason = delivery.FaultPayload, "payload:not_built"
		return res, true
	case r.Err != nil:
		return r.judgeError(res), true
	case r.Status == http.StatusTooManyRequests:
		res.Outcome, res.Fault, res.Reason = delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"
		res.RetryAfter = RetryAfter(r.Header, time.Now())
		return res, true
	case r.Status >= 300 && r.Status < 400:
		res.Outcome, res.Fault = delivery.OutcomeFailed, delivery.FaultDestination
		res.Reason = "destination:redirect_" + strconv.Itoa(r.Status)
		res.Error = fmt.Sprintf("%s answered with a redirect (%d), which is never followed", r.Host, r.Status)
		res.Sentence = "the URL is wrong: put the address that answers without a redirect into the file"
		return r.clean(res), true
	case r.Status >= 500:
		return r.Doubt("http_"+strconv.Itoa(r.Status), fmt.Sprintf("%s answered %d, which does not say whether it took the message", r.Host, r.Status)), true
	case r.Status < 200:
		return r.Doubt("http_"+strconv.Itoa(r.Status), fmt.Sprintf("%s answered %d, which is no answer to a message", r.Host, r.Status)), true
	case r.Status < 300 && r.ReadErr != nil:
		return r.BrokenOff(), true
	}
	return res, false
}

// BrokenOff is the result of an answer whose body did not come whole, where the body decides: unknown. With a 4xx too: a
// refusal that can't be read may say that all is as it should be ("not modified"), or name a fault that passes.
func (r Record) BrokenOff() delivery.Result {
	res := r.evidence()
	res.Outcome, res.Evidence = delivery.OutcomeUnknown, delivery.PossiblySent
	res.Reason = r.readReason()
	if r.timedOut {
		res.Error = r.ReadErr.Error() // the bound's own words
	} else {
		res.Error = fmt.Sprintf("the answer of %s broke off after %d bytes: %v", r.Host, len(r.Body), r.ReadErr)
	}
	res.Sentence = r.mayHaveArrived()
	return r.clean(res)
}

// Doubt is the result of an answer that does not say what happened: unknown, with the provider's name before code.
func (r Record) Doubt(code, text string) delivery.Result {
	res := r.evidence()
	res.Outcome, res.Reason, res.Error = delivery.OutcomeUnknown, r.provider+":"+code, text
	res.Code = code
	res.Sentence = r.mayHaveArrived()
	return r.clean(res)
}

// evidence is the part of a result that needs no judgement.
func (r Record) evidence() delivery.Result {
	res := delivery.Result{
		HTTPStatus: r.Status, Bytes: r.Bytes, DNS: r.DNS, Connect: r.Connect, TLS: r.TLS, FirstByte: r.FirstByte,
		Duration: r.Duration, Answer: r.Answer(), Phase: phases[r.phase],
	}
	switch {
	case r.Status != 0:
		res.Evidence = delivery.Answered
	case r.Bytes > 0 || r.Conns > 1:
		res.Evidence = delivery.PossiblySent
	case r.Called:
		res.Evidence = delivery.NotSent
	default:
		res.Evidence = delivery.NotCalled
	}
	return res
}

// phases are the names that the phases have in results. A call that was ended before its look-up began has none.
var phases = map[phase]delivery.Phase{
	phaseDNS: delivery.PhaseDNS, phaseConnect: delivery.PhaseConnect, phaseTLS: delivery.PhaseTLS,
	phaseAnswer: delivery.PhaseRequest, phaseBody: delivery.PhaseAnswer,
}

func (r Record) judgeError(res delivery.Result) delivery.Result {
	var refused refusal
	if errors.As(r.Err, &refused) {
		res.Outcome, res.Fault, res.Reason = delivery.OutcomeFailed, delivery.FaultDestination, "destination:"+refused.code
		res.Sentence = refused.sentence
		res.Error = fmt.Sprintf("%s was not called: %s", r.Host, refused.text)
		return r.clean(res)
	}
	res.Reason = r.errorReason()
	if res.Evidence == delivery.NotSent {
		res.Outcome, res.Fault = delivery.OutcomeFailed, delivery.FaultTransient
		res.Error = fmt.Sprintf("%s %s: %v", r.doing(), r.Host, r.Err)
	} else {
		res.Outcome = delivery.OutcomeUnknown
		res.Error = fmt.Sprintf("waiting for the answer of %s, %d bytes written: %v", r.Host, r.Bytes, r.Err)
		res.Sentence = r.mayHaveArrived()
	}
	if r.timedOut {
		res.Error = r.Err.Error() // "send timed out after 10s": the bound's own words, and no more
	}
	return r.clean(res)
}

func (r Record) mayHaveArrived() string {
	return fmt.Sprintf("%d bytes went to %s and no clear answer came: it may have arrived", r.Bytes, r.Host)
}

// doing names the phase in which a call ended that wrote nothing.
func (r Record) doing() string {
	switch r.phase {
	case phaseDNS:
		return "looking up"
	case phaseTLS:
		return "shaking hands with"
	case phaseAnswer, phaseBody:
		return "beginning to write to"
	}
	return "connecting to"
}

// errorReason is the reason of a call without an answer, from types and phases.
func (r Record) errorReason() string {
	var dns *net.DNSError
	switch {
	case r.timedOut:
		return "timeout"
	case r.canceled:
		return "shutdown" // only a stopping process cancels a call
	case errors.As(r.Err, &dns) || r.phase == phaseDNS:
		return "dns"
	case r.phase == phaseTLS:
		return "tls"
	case r.phase < phaseTLS:
		return "refused"
	case broken(r.Err):
		return "reset"
	}
	return r.provider + ":malformed_answer"
}

func (r Record) readReason() string {
	switch {
	case r.timedOut:
		return "timeout"
	case r.canceled:
		return "shutdown"
	case errors.Is(r.ReadErr, ErrTooLong):
		return r.provider + ":answer_too_long"
	case broken(r.ReadErr):
		return "reset"
	}
	return r.provider + ":malformed_answer"
}

// broken says that the connection ended, rather than what was said on it.
func broken(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// RetryAfter reads the header: whole seconds or a date, which is compared with the answer's own Date where it has
// one. At least a second, at most a day; a second where there is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.ParseInt(v, 10, 32); err == nil {
		return clampRetry(time.Duration(n) * time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		if d, err := http.ParseTime(h.Get("Date")); err == nil {
			now = d // the provider's clock against the provider's clock
		}
		return clampRetry(at.Sub(now))
	}
	return time.Second
}

func clampRetry(d time.Duration) time.Duration { return min(max(d, time.Second), 24*time.Hour) }
