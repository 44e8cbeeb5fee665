package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
)

// letters encodes one rune a token, its code as id, between two marks.
type letters struct{}

const begin, end int32 = 1, 2

func (letters) Encode(text string, special bool) (ids []int32, spans [][2]int, err error) {
	if special {
		ids, spans = append(ids, begin), append(spans, [2]int{})
	}
	for i, r := range []rune(text) {
		ids, spans = append(ids, r), append(spans, [2]int{i, i + 1})
	}
	return ids, spans, nil
}

// shown writes a sequence with tokens that are not learned in brackets.
func shown(s Sequence) string {
	var b strings.Builder
	in := false
	for i, id := range s.IDs {
		if ignored := s.Labels[i] == IgnoreLabel; ignored != in {
			b.WriteByte("]["[map[bool]int{false: 0, true: 1}[ignored]])
			in = ignored
		}
		switch {
		case id == begin:
			b.WriteByte('^')
		case id == end:
			b.WriteByte('$')
		default:
			b.WriteRune(id)
		}
		if s.Labels[i] != IgnoreLabel && s.Labels[i] != id {
			b.WriteByte('!')
		}
	}
	if in {
		b.WriteByte(']')
	}
	return b.String()
}

// chatty renders <u>…</u> and <a>…</a>; its variants misbehave.
type chatty struct{ think, forget, shout bool }

func (c chatty) Render(messages []json.RawMessage, _ json.RawMessage, prompt bool) (string, error) {
	var b strings.Builder
	for i, raw := range messages {
		var m struct{ Role, Content string }
		if err := json.Unmarshal(raw, &m); err != nil {
			return "", err
		}
		if m.Role == "" {
			return "", errors.New("a message without a role")
		}
		tag := m.Role[:1]
		if c.forget && i < len(messages)-1 && tag == "a" {
			m.Content = "…"
		}
		if c.shout {
			m.Content = strings.ToUpper(m.Content)
			tag += strconv.Itoa(len(messages))
		}
		fmt.Fprintf(&b, "<%s>%s</%s>", tag, m.Content, tag)
	}
	if prompt {
		b.WriteString("<a>")
		if c.think {
			b.WriteString("<think>")
		}
	}
	return b.String(), nil
}

func conversation(t *testing.T, turns ...string) []json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	for i, text := range turns {
		b, err := json.Marshal(map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func TestWhatIsLearnedOfAText(t *testing.T) {
	eos := end
	talk := conversation(t, "hé", "ho", "hi", "ha")
	for _, c := range []struct {
		name string
		do   func(TextOptions) (Sequence, error)
		o    TextOptions
		want string
	}{
		{"text", func(o TextOptions) (Sequence, error) { return TokenizeText(letters{}, "abc", o) }, TextOptions{EOS: &eos}, "^abc$"},
		{"cut text", func(o TextOptions) (Sequence, error) { return TokenizeText(letters{}, "abc", o) }, TextOptions{MaxLength: 3}, "^ab"},
		{"prompt", func(o TextOptions) (Sequence, error) { return TokenizePrompt(letters{}, "é?", "ja", o) }, TextOptions{EOS: &eos}, "[^é?]ja$"},
		{"learned prompt", func(o TextOptions) (Sequence, error) { return TokenizePrompt(letters{}, "é?", "ja", o) }, TextOptions{LearnPrompt: true}, "[^]é?ja"},
		{"chat", func(o TextOptions) (Sequence, error) { return TokenizeChat(letters{}, chatty{}, talk, nil, o) }, TextOptions{},
			"[<u>hé</u><a>]ho</a>[<u>hi</u><a>]ha</a>"},
		{"last answer", func(o TextOptions) (Sequence, error) {
			return TokenizeChat(letters{}, chatty{forget: true}, talk, nil, o)
		}, TextOptions{LastAnswer: true},
			"[<u>hé</u><a>…</a><u>hi</u><a>]ha</a>"},
		{"answers that the template leaves out", func(o TextOptions) (Sequence, error) {
			return TokenizeChat(letters{}, chatty{forget: true}, talk, nil, o)
		}, TextOptions{}, "[<u>hé</u><a>…</a><u>hi</u><a>]ha</a>"},
		{"header that begins a thought", func(o TextOptions) (Sequence, error) {
			return TokenizeChat(letters{}, chatty{think: true}, talk[:2], nil, o)
		}, TextOptions{}, "[<u>hé</u><a>]ho</a>"},
		{"question left open", func(o TextOptions) (Sequence, error) { return TokenizeChat(letters{}, chatty{}, talk[:3], nil, o) }, TextOptions{},
			"[<u>hé</u><a>]ho</a>[<u>hi</u>]"},
		{"all of a chat", func(o TextOptions) (Sequence, error) { return TokenizeChat(letters{}, chatty{}, talk[:2], nil, o) }, TextOptions{LearnPrompt: true},
			"<u>hé</u><a>ho</a>"},
	} {
		got, err := c.do(c.o)
		if err != nil || shown(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, shown(got), err, c.want)
		}
	}
	if _, err := TokenizeChat(letters{}, chatty{shout: true}, talk, nil, TextOptions{}); !errors.Is(err, ErrUnstable) {
		t.Errorf("an unstable template: %v", err)
	}
}

func TestPacking(t *testing.T) {
	word := func(s string) Sequence { return must(TokenizeText(letters{}, s, TextOptions{})) }
	words := []Sequence{word("ab"), word("cdef"), word("g")} // with ^: 3, 5 and 2
	for _, c := range []struct {
		length int
		o      PackOptions
		want   string
	}{
		{4, PackOptions{Split: true}, "[^]ab[^]|cdef|[^]g"},
		{4, PackOptions{Split: true, DropLast: true}, "[^]ab[^]|cdef"},
		{4, PackOptions{}, "[^]ab|[^]cde|[^]g"},
		{8, PackOptions{}, "[^]ab[^]cdef|[^]g"},
		{20, PackOptions{DropLast: true}, ""},
	} {
		blocks, err := Pack(words, c.length, c.o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range blocks {
			got = append(got, shown(b))
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%d, %+v: %s, want %s", c.length, c.o, s, c.want)
		}
	}
	blocks := must(Pack(words, 8, PackOptions{}))
	if fmt.Sprint(blocks[0].Positions) != "[0 1 2 0 1 2 3 4]" {
		t.Errorf("positions %v", blocks[0].Positions)
	}
	if _, err := Pack(words, 0, PackOptions{}); err == nil {
		t.Error("blocks of nothing")
	}
	if _, err := Pack([]Sequence{{IDs: []int32{1}}}, 4, PackOptions{}); err == nil {
		t.Error("ids without labels were packed")
	}
}

func TestPadding(t *testing.T) {
	rows := []Sequence{{IDs: []int32{1, 2, 3}, Labels: []int32{1, 2, 3}}, {IDs: []int32{4}, Labels: []int32{IgnoreLabel}, Positions: []int32{7}}}
	for _, c := range []struct {
		p    Padding
		want string
	}{
		{Padding{ID: 9}, "3 [1 2 3 4 9 9] [1 2 3 -100 -100 -100] [1 1 1 1 0 0] [0 1 2 7 0 0]"},
		{Padding{ID: 9, Left: true}, "3 [1 2 3 9 9 4] [1 2 3 -100 -100 -100] [1 1 1 0 0 1] [0 1 2 0 0 7]"},
		{Padding{Multiple: 2}, "4 [1 2 3 0 4 0 0 0] [1 2 3 -100 -100 -100 -100 -100] [1 1 1 0 1 0 0 0] [0 1 2 0 7 0 0 0]"},
	} {
		b, err := PadTokens(c.p)(rows)
		got := fmt.Sprint(b.Columns, b.IDs, b.Labels, b.Mask, b.Positions)
		if err != nil || got != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.p, got, err, c.want)
		}
	}
	left := must(PadTokens(Padding{Left: true, Length: 4})(rows[:1]))
	if got := fmt.Sprint(left.IDs, left.Labels); got != "[0 1 2 3] [-100 -100 2 3]" {
		t.Errorf("behind padding: %s, want its first label ignored", got)
	}
	if b := must(PadTokens(Padding{Length: 5})(rows)); b.Columns != 5 {
		t.Errorf("%d columns, want 5", b.Columns)
	}
	if _, err := PadTokens(Padding{Length: 2})(rows); err == nil {
		t.Error("a sequence longer than its row")
	}
	if b, err := PadTokens(Padding{})(nil); err != nil || b.Rows != 0 {
		t.Errorf("an empty batch: %+v, %v", b, err)
	}
}

const records = `{"text":"one"}

{"prompt":"p","completion":"c","more":1}
{"messages":[{"role":"user","content":"u"}]}`

// TestJSONLWithAMark: files of some editors begin with a byte order mark, which was no JSON.
func TestJSONLWithAMark(t *testing.T) {
	n := 0
	for r, err := range ReadJSONL(strings.NewReader("\ufeff{\"text\": \"a\"}\r\n{\"text\": \"b\"}\r\n")) {
		if n++; err != nil || r.Text == nil {
			t.Errorf("record %d: %v", n, err)
		}
	}
	if n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestJSONL(t *testing.T) {
	var forms []string
	for r, err := range ReadJSONL(strings.NewReader(records)) {
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Tokenize(letters{}, chatty{}, TextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, shown(s))
	}
	if got := strings.Join(forms, " "); got != "^one [^p]c [<u>u</u>]" {
		t.Errorf("read %s", got)
	}

	path := filepath.Join(t.TempDir(), "d.jsonl")
	if err := os.WriteFile(path, []byte("\n"+records+"\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenJSONL(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Len() != 4 {
		t.Fatalf("%d records", d.Len())
	}
	sequences := Map(Dataset[Record](d), func(r Record) (Sequence, error) { return r.Tokenize(letters{}, chatty{}, TextOptions{}) })
	for i, want := range forms {
		if s, err := sequences.At(i); err != nil || shown(s) != want {
			t.Errorf("record %d: %s, %v", i, shown(s), err)
		}
	}
	if _, err := All(sequences); err == nil || !strings.Contains(err.Error(), "line 6") {
		t.Errorf("a record without a form: %v", err)
	}
	if _, err := d.At(4); err == nil {
		t.Error("a record beyond the end")
	}
	if _, err := OpenJSONL(path + "x"); err == nil {
		t.Error("a file that is not there")
	}
}

func TestBadRecordsNameTheirLine(t *testing.T) {
	for _, bad := range []string{`{`, `[]`, `{}`, `{"text":"a","prompt":"b"}`, `{"prompt":"b"}`, `{"messages":[]}`, `{"text":3}`} {
		var last error
		for _, err := range ReadJSONL(strings.NewReader("{\"text\":\"\"}\n" + bad + "\n")) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), "line 2") {
			t.Errorf("%s: %v", bad, last)
		}
	}
	if _, err := (Record{}).Tokenize(letters{}, nil, TextOptions{}); err == nil {
		t.Error("an empty record was tokenized")
	}
	if _, err := (Record{Messages: conversation(t, "u")}).Tokenize(letters{}, nil, TextOptions{}); err == nil {
		t.Error("a conversation without a template was tokenized")
	}
}

func FuzzReadJSONL(f *testing.F) {
	f.Add([]byte(records))
	f.Add([]byte("{\"messages\":[3,null]}\r\n"))
	f.Add([]byte("{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"}],\"system\":3}\n{\"instruction\":\"a\"}\n{\"prompt\":[],\"completion\":[{}]}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for r, err := range ReadJSONL(strings.NewReader(string(b))) {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "data: line ") {
					t.Errorf("an error without a place: %v", err)
				}
				continue
			}
			s, err := r.Tokenize(letters{}, chatty{}, TextOptions{})
			if err == nil && (len(s.IDs) == 0 || len(s.Labels) != len(s.IDs)) {
				t.Errorf("%d ids and %d labels of %q", len(s.IDs), len(s.Labels), b)
			}
		}
	})
}

// A model's folder: any tokenizer of the fixtures, with a template of our own.
func TestTokenizersOfAFolder(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Module(t), "testdata", "golden", "text", "tokenizers", "tiny-llama3like", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	const template = `{%- for m in messages %}[{{ m.role }}]{{ m.content }}{{ "\n" }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	dir := fstest.MapFS{"tokenizer.json": {Data: b}, "chat_template.jinja": {Data: []byte(template)}}
	tok, err := OpenTokenizerFS("m", dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := TokenizeChat(tok, tok, conversation(t, "What is it?", "A thing."), nil, TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var learned []int32
	for i, l := range s.Labels {
		if l != IgnoreLabel {
			learned = append(learned, s.IDs[i])
		}
	}
	if got := tok.Decode(learned); !strings.HasSuffix(got, "thing.\n") || strings.Contains(got, "What") {
		t.Errorf("learned %q of %q", got, tok.Decode(s.IDs))
	}
	if _, ok := tok.Special("pad_token"); ok {
		t.Error("a pad token out of nowhere")
	}
	delete(dir, "chat_template.jinja")
	if tok, err = OpenTokenizerFS("m", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Render(conversation(t, "u"), nil, false); err == nil {
		t.Error("rendered without a template")
	}
	if _, err := OpenTokenizer(t.TempDir()); err == nil {
		t.Error("a folder without a tokenizer")
	}
	if _, err := OpenTokenizerFS("m", fstest.MapFS{}); err == nil || err.Error() != "data: tokenizer: m has no tokenizer.json" {
		t.Errorf("got %v of files without a tokenizer", err)
	}
}
