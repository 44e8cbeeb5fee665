package data

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOnlyMessagesWereConversations: records of TRL, ShareGPT and Alpaca were rejected. They are
// learned as conversations.
func TestOnlyMessagesWereConversations(t *testing.T) {
	for _, c := range []struct{ record, want string }{
		{`{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"r"}]}`, "[<u>q</u><a>]r</a>"},
		{`{"system":"s","conversations":[{"from":"user","value":"q"},{"from":"assistant","value":"r"}]}`, "[<s>s</s><u>q</u><a>]r</a>"},
		{`{"conversations":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]}`, "[<u>q</u><a>]r</a>"},
		{`{"conversations":[{"role":"human","value":"q"},{"role":"assistant","value":"r"}]}`, "[<u>q</u><a>]r</a>"},
		{`{"instruction":"do","input":"","output":"r"}`, "[<u>do</u><a>]r</a>"},
		{`{"instruction":"do","input":"in","output":"r","text":null,"system":""}`, "[<u>do\nin</u><a>]r</a>"},
		{`{"instruction":"do","output":"r","system":"s"}`, "[<s>s</s><u>do</u><a>]r</a>"},
		{`{"instruction":"do","output":"r","history":[]}`, "[<u>do</u><a>]r</a>"},
		{`{"instruction":"do","output":"r","system":"s","history":[["c","d"]]}`, "[<s>s</s><u>c</u><a>]d</a>[<u>do</u><a>]r</a>"},
		{`{"prompt":"q","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]}`, "[<u>q</u><a>]r</a>"},
		{`{"text":"all of it","instruction":"do","output":"r"}`, "^all of it"},
		{`{"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"r"}]}`, "[<u>q</u><a>]r</a>"},
		{`{"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"r"},{"role":"user","content":"p"}],"completion":[{"role":"assistant","content":"z"}]}`,
			"[<u>q</u><a>r</a><u>p</u><a>]z</a>"},
	} {
		r, err := parseRecord([]byte(c.record))
		if err != nil {
			t.Errorf("%s: %v", c.record, err)
			continue
		}
		s, err := r.Tokenize(letters{}, chatty{}, TextOptions{})
		if err != nil || shown(s) != c.want {
			t.Errorf("%s: got %q, want %q, %v", c.record, shown(s), c.want, err)
		}
	}
}

// TestTypeErrorsWereRawJSON: a value of a wrong type was reported with Go's types. The error is a
// sentence with the line and the field.
func TestTypeErrorsWereRawJSON(t *testing.T) {
	for record, want := range map[string]string{
		`{"text":3}`:                                             "text: got a number, want a string",
		`{"text":["a"]}`:                                         "text: got a list, want a string",
		`{"prompt":"a","completion":{}}`:                         "completion: got an object, want a string",
		`{"prompt":true,"completion":"a"}`:                       "prompt: got a boolean, want a string",
		`{"prompt":[{"role":"user"}],"completion":"a"}`:          "completion: got a string, want a list of messages",
		`{"prompt":[{"role":"user"}],"completion":[{"role":3}]}`: `completion[0]: got role "", want assistant`,
		`{"prompt":[{}],"completion":[{},{}]}`:                   "completion: got 2 messages, want one: use messages for several",
		`{"messages":"hi"}`:                                      "messages: got a string, want a list of messages",
		`{"messages":[{"role":"user"},"hi"]}`:                    "messages[1]: got a string, want an object",
		`{"messages":[]}`:                                        "messages: got an empty list, want at least one",
		`{"conversations":[{"from":"ghost","value":"a"}]}`:       `conversations[0]: from: got "ghost", want human, gpt, system or tool`,
		`{"conversations":[{"from":"human","value":3}]}`:         "conversations[0]: value: got a number, want a string",
		`{"conversations":[{"text":"a"}]}`:                       "conversations[0]: want from and value, or role and content",
		`{"instruction":"a"}`:                                    "got no output, want instruction and output",
		`{"instruction":"a","output":3}`:                         "output: got a number, want a string",
		`{"instruction":"a","output":"b","history":[["c"]]}`:     "history[0]: got 1 texts, want an instruction and its output",
		`{"instruction":"a","output":"b","history":"c"}`:         "history: want a list of [instruction, output]",
		`{"messages":[{"role":"user"}],"tools":5}`:               "tools: got a number, want a list of objects",
		`{"messages":[{"role":"user"}],"tools":["a"]}`:           "tools[0]: got a string, want an object",
		`{"messages":[{"role":"user"}],"tools":"none"}`:          "tools: got a string, want a list of objects",
		`[{"text":"a"}]`:                                         "got a list, want an object: write one record per line",
		`null`:                                                   "got null, want an object: write one record per line",
		`{"text":`:                                               "got text that is not JSON (unexpected end of JSON input), want one JSON object on each line, or one JSON list of objects",
	} {
		var last error
		for _, err := range ReadJSONL(strings.NewReader("{\"text\":\"\"}\n" + record + "\n")) {
			last = err
		}
		if last == nil || last.Error() != "data: line 2: "+want {
			t.Errorf("%s: got %v, want %s", record, last, want)
		}
	}
}

// TestRecordsKeepTheirJSON: messages and tools are passed on as they are written.
func TestRecordsKeepTheirJSON(t *testing.T) {
	const message, tools = `{"role": "user",  "content": [1]}`, `[{"a":  1}]`
	r, err := parseRecord([]byte(`{"messages": [` + message + `], "tools": ` + tools + `}`))
	if err != nil || len(r.Messages) != 1 || string(r.Messages[0]) != message || string(r.Tools) != tools {
		t.Errorf("got %s, %s, %v", r.Messages, json.RawMessage(r.Tools), err)
	}
}

// TestToolsWereNoJSONText: tools as a JSON text, as TRL reads them, were rejected.
func TestToolsWereNoJSONText(t *testing.T) {
	r, err := parseRecord([]byte(`{"messages": [{"role": "user"}], "tools": "[{\"a\": 1}]"}`))
	if err != nil || string(r.Tools) != `[{"a": 1}]` {
		t.Errorf("got tools %s, %v", json.RawMessage(r.Tools), err)
	}
}

// TestALargeMarginMadeTheLossInfinite: margins beyond float32 were accepted and became infinite, and
// those beyond float64 were reported with Go's types.
func TestALargeMarginMadeTheLossInfinite(t *testing.T) {
	for _, margin := range []string{"1e300", "-1e39", "1e999"} {
		_, err := parseComparison([]byte(`{"chosen": "a", "rejected": "b", "margin": ` + margin + `}`))
		if want := "margin: got " + margin + ", want a number within the range of float32"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestPackedFilesAreNamed: gzip files and files in UTF-16 were text with an invalid character.
func TestPackedFilesAreNamed(t *testing.T) {
	for begin, want := range map[string]string{"\x1f\x8b\x08": "got a gzip file: unpack it with gunzip", "\xff\xfe{\x00": "got UTF-16: convert it with iconv"} {
		if _, err := readFields([]byte(begin)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", begin, err, want)
		}
	}
}
