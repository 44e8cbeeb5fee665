package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// fields are the keys of a record that are not null.
type fields map[string]json.RawMessage

// fileOf returns the kind of a file that begins with line and is not JSON, or "" if it is unknown.
func fileOf(line []byte) string {
	for begin, what := range map[string]string{
		"\x1f\x8b": "a gzip file: unpack it with gunzip", "\x28\xb5\x2f\xfd": "a zstd file: unpack it with unzstd",
		"PK\x03\x04": "a zip file: unpack it", "\xff\xfe": "UTF-16: convert it with iconv", "\xfe\xff": "UTF-16: convert it with iconv",
	} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return what
		}
	}
	return ""
}

// notUTF8 returns the index of the first byte that is not valid UTF-8, or -1. JSON's decoder would
// silently replace such bytes.
func notUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// readFields parses line as a JSON object.
func readFields(line []byte) (fields, error) {
	line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark, which some editors write
	if !json.Valid(line) {
		if what := fileOf(line); what != "" {
			return nil, fmt.Errorf("got %s, want JSON lines in UTF-8", what)
		}
		var none json.RawMessage
		return nil, fmt.Errorf("got text that is not JSON (%w), want one JSON object on each line, or one JSON list of objects", json.Unmarshal(line, &none))
	}
	if at := notUTF8(line); at >= 0 {
		return nil, fmt.Errorf("got byte 0x%02x at %d, want UTF-8: convert the file with iconv", line[at], at)
	}
	if kind := kindOf(line); kind != "an object" {
		return nil, fmt.Errorf("got %s, want an object: write one record per line", kind)
	}
	var f fields
	if err := json.Unmarshal(line, &f); err != nil {
		return nil, err
	}
	for name, v := range f {
		if kindOf(v) == "null" {
			delete(f, name)
		}
	}
	return f, nil
}

// kindOf names the type of a JSON value.
func kindOf(v []byte) string {
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return "nothing"
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// has reports whether f has any of the keys.
func (f fields) has(names ...string) bool {
	for _, name := range names {
		if _, ok := f[name]; ok {
			return true
		}
	}
	return false
}

// text returns the string of a key, or nil if the key is missing.
func (f fields) text(name string) (*string, error) {
	v, ok := f[name]
	if !ok {
		return nil, nil
	}
	if kind := kindOf(v); kind != "a string" {
		return nil, fmt.Errorf("%s: got %s, want a string", name, kind)
	}
	var s string
	err := json.Unmarshal(v, &s)
	return &s, err
}

// number returns the number of a key, or 0 if the key is missing.
func (f fields) number(name string) (x float64, err error) {
	v, ok := f[name]
	if !ok {
		return 0, nil
	}
	if kind := kindOf(v); kind != "a number" {
		return 0, fmt.Errorf("%s: got %s, want a number", name, kind)
	}
	if err := json.Unmarshal(v, &x); err != nil || math.IsInf(float64(float32(x)), 0) {
		return 0, fmt.Errorf("%s: got %s, want a number within the range of float32", name, v)
	}
	return x, nil
}

// tools returns the list of tools, or nil if the record has none. The list may be a JSON text, as
// TRL reads it.
func (f fields) tools() (json.RawMessage, error) {
	v, ok := f["tools"]
	if !ok {
		return nil, nil
	}
	var text string
	if json.Unmarshal(v, &text) == nil && json.Valid([]byte(text)) {
		v = json.RawMessage(text)
	}
	var all []json.RawMessage
	if json.Unmarshal(v, &all) != nil {
		return nil, fmt.Errorf("tools: got %s, want a list of objects", kindOf(v))
	}
	for i, tool := range all {
		if kind := kindOf(tool); kind != "an object" {
			return nil, fmt.Errorf("tools[%d]: got %s, want an object", i, kind)
		}
	}
	return v, nil
}

// messages returns the list of one or more objects of a key, or nil if the key is missing.
func (f fields) messages(name string) ([]json.RawMessage, error) {
	v, ok := f[name]
	if !ok {
		return nil, nil
	}
	if kind := kindOf(v); kind != "a list" {
		return nil, fmt.Errorf("%s: got %s, want a list of messages", name, kind)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(v, &all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: got an empty list, want at least one", name)
	}
	for i, m := range all {
		if kind := kindOf(m); kind != "an object" {
			return nil, fmt.Errorf("%s[%d]: got %s, want an object", name, i, kind)
		}
	}
	return all, nil
}

// message makes a message of a conversation.
func message(role, content string) (json.RawMessage, error) {
	return json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, content})
}

// shareRoles maps ShareGPT's speakers to the roles of chat templates.
var shareRoles = map[string]string{
	"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant", "bot": "assistant",
	"system": "system", "tool": "tool", "observation": "tool", "function_response": "tool",
}

// shareGPT reads conversations of {"from", "value"}. Messages of {"role", "content"} stay
// unchanged.
func (r *Record) shareGPT(f fields) error {
	turns, err := f.messages("conversations")
	if err != nil {
		return err
	}
	if err := r.system(f); err != nil {
		return err
	}
	for i, turn := range turns {
		m, err := sharedTurn(turn)
		if err != nil {
			return fmt.Errorf("conversations[%d]: %w", i, err)
		}
		r.Messages = append(r.Messages, m)
	}
	return nil
}

func sharedTurn(turn json.RawMessage) (json.RawMessage, error) {
	f, err := readFields(turn)
	if err != nil || f.has("role") && !f.has("value") {
		return turn, err
	}
	speaker := "from"
	if f.has("role") { // its "value" would be ignored
		speaker = "role"
	}
	from, err := f.text(speaker)
	if err != nil {
		return nil, err
	}
	value, err := f.text("value")
	if err != nil {
		return nil, err
	}
	if from == nil || value == nil {
		return nil, errors.New("want from and value, or role and content")
	}
	role, ok := shareRoles[*from]
	if !ok {
		return nil, fmt.Errorf("%s: got %q, want human, gpt, system or tool", speaker, *from)
	}
	return message(role, *value)
}

// system adds the record's system text, if there is one, as the first message.
func (r *Record) system(f fields) error {
	system, err := f.text("system")
	if err != nil || system == nil || *system == "" {
		return err
	}
	m, err := message("system", *system)
	r.Messages = append(r.Messages, m)
	return err
}

// alpaca reads an instruction with an optional input, and its output.
func (r *Record) alpaca(f fields) error {
	var texts [3]string
	for i, name := range []string{"instruction", "input", "output"} {
		s, err := f.text(name)
		if err != nil {
			return err
		}
		if s != nil {
			texts[i] = *s
		} else if name != "input" {
			return fmt.Errorf("got no %s, want instruction and output", name)
		}
	}
	if texts[1] != "" {
		texts[0] += "\n" + texts[1]
	}
	if err := r.system(f); err != nil {
		return err
	}
	if err := r.history(f); err != nil {
		return err
	}
	user, err := message("user", texts[0])
	if err != nil {
		return err
	}
	assistant, err := message("assistant", texts[2])
	r.Messages = append(r.Messages, user, assistant)
	return err
}

// history adds earlier turns. Each is a list of the user's text and the assistant's answer.
func (r *Record) history(f fields) error {
	v, ok := f["history"]
	if !ok {
		return nil
	}
	var turns [][]string
	if err := json.Unmarshal(v, &turns); err != nil {
		return errors.New("history: want a list of [instruction, output]")
	}
	for i, turn := range turns {
		if len(turn) != 2 {
			return fmt.Errorf("history[%d]: got %d texts, want an instruction and its output", i, len(turn))
		}
		for k, role := range []string{"user", "assistant"} {
			m, err := message(role, turn[k])
			if err != nil {
				return err
			}
			r.Messages = append(r.Messages, m)
		}
	}
	return nil
}

// prompted reads a prompt and its completion: two strings, or TRL's two lists of messages.
func (r *Record) prompted(f fields) error {
	if !f.has("prompt") || !f.has("completion") {
		return errors.New("got only one of prompt and completion, want both")
	}
	var err error
	if kindOf(f["prompt"]) != "a list" {
		if r.Prompt, err = f.text("prompt"); err != nil {
			return err
		}
		r.Completion, err = f.text("completion")
		return err
	}
	if r.Messages, err = f.messages("prompt"); err != nil {
		return err
	}
	answer, err := f.messages("completion")
	if err != nil {
		return err
	}
	if len(answer) > 1 {
		return fmt.Errorf("completion: got %d messages, want one: use messages for several", len(answer))
	}
	if role, err := readRole(answer[0]); err != nil || role != "assistant" {
		return fmt.Errorf("completion[0]: got role %q, want assistant", role)
	}
	r.Messages, r.completed = append(r.Messages, answer...), true
	return nil
}

func readRole(m json.RawMessage) (string, error) {
	f, err := readFields(m)
	if err != nil {
		return "", err
	}
	role, err := f.text("role")
	if err != nil || role == nil {
		return "", err
	}
	return *role, nil
}
