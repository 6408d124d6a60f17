package slacktest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"unicode/utf16"
)

// Slack's limits in characters and elements.
const (
	blocksMost      = 50
	attachmentsMost = 100
	sectionMost     = 3000
	fieldMost       = 2000
	fieldsMost      = 10
	headerMost      = 150
	contextMost     = 10
	actionsMost     = 25
	buttonMost      = 75
	valueMost       = 2000
	urlMost         = 3000
	idMost          = 255
	altMost         = 2000
	markdownMost    = 12000
	metadataMost    = 16 * 1024
)

// Check says whether Slack would take what a form posts, or edits, within all of its limits. It needs no workspace.
func Check(form url.Values, edit bool) error {
	c := &call{params: map[string]string{}}
	for k := range form {
		c.params[k] = form.Get(k)
	}
	if _, fail := content(c, edit); fail != nil {
		return fmt.Errorf("%v: %v", fail["error"], fail["response_metadata"])
	}
	return nil
}

// units counts characters as UTF-16 does. Slack does not say how it counts; this is the way in which a text is longest, and
// one that passes here passes any other.
func units(s string) (n int) {
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// parseList reads a JSON array of objects; anything else is an empty list.
func parseList(raw json.RawMessage) []map[string]any {
	var out []map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// checker gathers problems in Slack's words, each with the JSON pointer of its place.
type checker struct {
	problems []string
	blockIDs map[string]bool
	next     int
}

func (k *checker) bad(at, format string, args ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, args...)+" [json-pointer:"+at+"]")
}

// checkBlocks validates blocks and returns them as stored: with a block_id on each. Both results nil: no array of objects.
func checkBlocks(raw []byte, at string) (json.RawMessage, []string) {
	var list []map[string]any
	if json.Unmarshal(raw, &list) != nil {
		return nil, nil
	}
	k := &checker{blockIDs: map[string]bool{}}
	k.blocks(list, at)
	if k.problems != nil {
		return nil, k.problems
	}
	stored, _ := json.Marshal(list)
	return stored, nil
}

func (k *checker) blocks(list []map[string]any, at string) {
	if len(list) > blocksMost {
		k.bad(at, "no more than %d items allowed", blocksMost)
	}
	for i, b := range list {
		p := fmt.Sprintf("%s/%d", at, i)
		if b == nil {
			k.bad(p, "must be an object")
			continue
		}
		k.block(b, p)
		id, _ := b["block_id"].(string)
		switch {
		case id == "":
			k.next++
			b["block_id"] = fmt.Sprintf("b%04x", k.next)
		case units(id) > idMost:
			k.bad(p+"/block_id", "must be less than %d characters", idMost+1)
		case k.blockIDs[id]:
			k.bad(p+"/block_id", "`block_id` must be unique")
		}
		k.blockIDs[id] = true
	}
}

func (k *checker) block(b map[string]any, p string) {
	switch b["type"] {
	case "divider", "rich_text", "video", "file", "table", "call":
	case "header":
		k.text(b["text"], p+"/text", headerMost, "plain_text")
	case "markdown":
		if s, ok := b["text"].(string); !ok || s == "" {
			k.bad(p+"/text", "must be more than 0 characters")
		} else if units(s) > markdownMost {
			k.bad(p+"/text", "must be less than %d characters", markdownMost+1)
		}
	case "image":
		k.image(b, p)
	case "section":
		k.section(b, p)
	case "context":
		k.elements(b, p, contextMost, func(e map[string]any, at string) {
			if e["type"] == "image" {
				k.image(e, at)
				return
			}
			k.text(e, at, sectionMost, "plain_text", "mrkdwn")
		})
	case "actions":
		ids := map[string]bool{}
		k.elements(b, p, actionsMost, func(e map[string]any, at string) {
			k.element(e, at)
			id, _ := e["action_id"].(string)
			if id != "" && ids[id] {
				k.bad(at+"/action_id", "`action_id` %q already exists for another element", id)
			}
			ids[id] = true
		})
	default:
		k.bad(p+"/type", "unsupported type: %v", b["type"])
	}
}

func (k *checker) section(b map[string]any, p string) {
	if b["text"] == nil && b["fields"] == nil {
		k.bad(p, "missing required field: text")
		return
	}
	if b["text"] != nil {
		k.text(b["text"], p+"/text", sectionMost, "plain_text", "mrkdwn")
	}
	if b["fields"] != nil {
		fields, ok := b["fields"].([]any)
		switch {
		case !ok || len(fields) == 0:
			k.bad(p+"/fields", "must provide at least 1 item")
		case len(fields) > fieldsMost:
			k.bad(p+"/fields", "no more than %d items allowed", fieldsMost)
		}
		for i, f := range fields {
			k.text(f, fmt.Sprintf("%s/fields/%d", p, i), fieldMost, "plain_text", "mrkdwn")
		}
	}
	if a, ok := b["accessory"].(map[string]any); ok {
		k.element(a, p+"/accessory")
	}
}

func (k *checker) elements(b map[string]any, p string, most int, each func(map[string]any, string)) {
	list, _ := b["elements"].([]any)
	if len(list) == 0 {
		k.bad(p+"/elements", "must provide at least 1 item")
	}
	if len(list) > most {
		k.bad(p+"/elements", "no more than %d items allowed", most)
	}
	for i, e := range list {
		at := fmt.Sprintf("%s/elements/%d", p, i)
		m, ok := e.(map[string]any)
		if !ok {
			k.bad(at, "must be an object")
			continue
		}
		each(m, at)
	}
}

func (k *checker) element(e map[string]any, p string) {
	if id, _ := e["action_id"].(string); units(id) > idMost {
		k.bad(p+"/action_id", "must be less than %d characters", idMost+1)
	}
	switch e["type"] {
	case "image":
		k.image(e, p)
	case "button":
		k.text(e["text"], p+"/text", buttonMost, "plain_text")
		if v, _ := e["value"].(string); units(v) > valueMost {
			k.bad(p+"/value", "must be less than %d characters", valueMost+1)
		}
		if u, ok := e["url"].(string); ok {
			k.url(u, p+"/url")
		}
		if style, ok := e["style"]; ok && style != "primary" && style != "danger" {
			k.bad(p+"/style", "value must be one of [danger, primary]")
		}
	case "overflow", "static_select", "users_select", "datepicker", "checkboxes", "radio_buttons", "timepicker",
		"conversations_select", "channels_select", "external_select", "datetimepicker", "workflow_button":
	default:
		k.bad(p+"/type", "unsupported type: %v", e["type"])
	}
}

func (k *checker) image(e map[string]any, p string) {
	u, _ := e["image_url"].(string)
	k.url(u, p+"/image_url")
	alt, _ := e["alt_text"].(string)
	if alt == "" {
		k.bad(p+"/alt_text", "missing required field: alt_text")
	} else if units(alt) > altMost {
		k.bad(p+"/alt_text", "must be less than %d characters", altMost+1)
	}
}

func (k *checker) url(u, p string) {
	v, err := url.Parse(u)
	if err != nil || v.Scheme == "" || v.Host == "" && v.Scheme != "mailto" {
		k.bad(p, "must be a valid URL")
	}
	if units(u) > urlMost {
		k.bad(p, "must be less than %d characters", urlMost+1)
	}
}

func (k *checker) text(v any, p string, most int, types ...string) {
	t, ok := v.(map[string]any)
	if !ok {
		k.bad(p, "missing required field: text")
		return
	}
	if kind, _ := t["type"].(string); !slices.Contains(types, kind) {
		k.bad(p+"/type", "unsupported type: %v", t["type"])
	}
	s, _ := t["text"].(string)
	switch n := units(s); {
	case n == 0:
		k.bad(p+"/text", "must be more than 0 characters")
	case n > most:
		k.bad(p+"/text", "must be less than %d characters", most+1)
	}
}

// checkAttachments validates attachments and returns them as stored: numbered, with a fallback.
func checkAttachments(raw []byte) (stored json.RawMessage, code string, problems []string) {
	var list []map[string]any
	if json.Unmarshal(raw, &list) != nil {
		return nil, "invalid_attachments", nil
	}
	if len(list) > attachmentsMost {
		return nil, "too_many_attachments", nil
	}
	k := &checker{blockIDs: map[string]bool{}}
	blocksInAll := 0
	for i, a := range list {
		p := fmt.Sprintf("/attachments/%d", i)
		if a == nil {
			k.bad(p, "must be an object")
			continue
		}
		if a["blocks"] == nil { // slack-go writes null where there are none
			delete(a, "blocks")
		} else {
			blocks := a["blocks"]
			raw, _ := json.Marshal(blocks)
			list := parseList(raw)
			if list == nil && string(raw) != "[]" {
				k.bad(p+"/blocks", "must be an array")
			}
			k.blocks(list, p+"/blocks")
			if blocksInAll += len(list); blocksInAll > blocksMost {
				k.bad(p+"/blocks", "no more than %d items allowed", blocksMost)
			}
			a["blocks"] = list
		}
		a["id"] = i + 1
		if a["fallback"] == nil {
			a["fallback"] = "[no preview available]"
		}
	}
	if k.problems != nil {
		return nil, "invalid_attachments", k.problems
	}
	stored, _ = json.Marshal(list)
	return stored, "", nil
}

// checkMetadata validates message metadata.
func checkMetadata(raw []byte) (code string, problems []string) {
	var m struct {
		Type    *string         `json:"event_type"`
		Payload json.RawMessage `json:"event_payload"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return "invalid_metadata_format", nil
	}
	var payload map[string]any
	switch {
	case m.Type == nil || *m.Type == "":
		return "invalid_metadata_schema", []string{"missing required field: event_type [json-pointer:/metadata]"}
	case json.Unmarshal(m.Payload, &payload) != nil || payload == nil:
		return "invalid_metadata_schema", []string{"missing required field: event_payload [json-pointer:/metadata]"}
	case len(raw) > metadataMost:
		return "metadata_too_large", nil
	}
	return "", nil
}
