package repl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/testenv"
)

// A server answers every conversation with the same pieces, as a stream.
type server struct {
	*httptest.Server
	asked []map[string]any
}

// serve starts a server. A piece "wait" blocks until the client disconnects; "fail" is an error of the
// server.
func serve(t *testing.T, pieces ...string) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		s.asked = append(s.asked, body)
		if len(pieces) > 0 && pieces[0] == "fail" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error": {"message": "temperature is 9, want 0 to 2"}}`)
			return
		}
		for _, p := range pieces {
			if p == "wait" {
				<-r.Context().Done()
				return
			}
			key := "content"
			if thought, ok := strings.CutPrefix(p, "think:"); ok {
				key, p = "reasoning_content", thought
			}
			text, err := json.Marshal(p)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(w, ": loading 1 of 2 blocks\n\ndata: {\"choices\": [{\"delta\": {%q: %s}}]}\n\n", key, text)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n"+
			"data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 3}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s
}

// session returns a session with s that writes into out and err.
func (s *server) session() (session *Session, out, err *bytes.Buffer) {
	out, err = new(bytes.Buffer), new(bytes.Buffer)
	return &Session{Client: &Client{URL: s.URL}, Model: "m", Out: out, Err: err}, out, err
}

// typed is the input of a user who types messages.
type typed []string

func (in *typed) Interactive() bool { return true }
func (in *typed) Close() error      { return nil }
func (in *typed) Read() (string, error) {
	lines := NewPipe(strings.NewReader("")) // whose end is io.EOF
	if len(*in) == 0 {
		return lines.Read()
	}
	line := (*in)[0]
	*in = (*in)[1:]
	return line, nil
}

// messages are the roles and texts of a request.
func messages(body map[string]any) string {
	var parts []string
	for _, m := range body["messages"].([]any) {
		m := m.(map[string]any)
		parts = append(parts, fmt.Sprint(m["role"], ": ", m["content"]))
	}
	return strings.Join(parts, "; ")
}

func TestASessionGoesOn(t *testing.T) {
	s := serve(t, "think:Hm.", "Yes", ".")
	session, out, _ := s.session()
	if err := session.Run(t.Context(), &typed{"/system Be brief.", "One?", "/set temperature 0.5", "/set stop [\"END\"]", "Two?", "/retry", "/set temperature", "/clear", "/system -", "Three?", "/exit", "never"}); err != nil {
		t.Fatal(err)
	}
	if want := "Yes.\nYes.\nYes.\nYes.\n"; out.String() != want {
		t.Errorf("the answers are %q, want %q", out.String(), want)
	}
	two := "system: Be brief.; user: One?; assistant: Yes.; user: Two?"
	for i, want := range []string{"system: Be brief.; user: One?", two, two, "user: Three?"} {
		if got := messages(s.asked[i]); got != want {
			t.Errorf("request %d has %q, want %q", i, got, want)
		}
	}
	if s.asked[0]["temperature"] != nil || s.asked[1]["temperature"] != 0.5 || s.asked[3]["temperature"] != nil || fmt.Sprint(s.asked[3]["stop"]) != "[END]" || s.asked[0]["model"] != "m" {
		t.Errorf("the parameters are %v", s.asked)
	}
	if len(s.asked) != 4 {
		t.Errorf("%d requests, want 4", len(s.asked))
	}
}

// TestCommandsSayWhatIsWrong and leave the conversation as it is.
func TestCommandsSayWhatIsWrong(t *testing.T) {
	s := serve(t, "Yes.")
	session, _, errs := s.session()
	for line, want := range map[string]string{"/nothing": "/help lists them", "/retry": "no message yet", "/set heat 1": `got "heat", want one of`,
		"/set temperature hot": "/set: temperature: got hot, want a number", "/set reasoning_effort 3": "want a word", "/set stop 5": "want a text, or a list", "/set chat_template_kwargs x": "want a JSON object", "/save": "want a file", "/load": "want a file",
		"/load " + t.TempDir() + "/none": "no such file", "/stats": "no answer yet", "/help": "/system", "/system": "none", "/set": "defaults"} {
		errs.Reset()
		if err := session.Run(t.Context(), &typed{line}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%s says %q, want %q", line, errs.String(), want)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("the server was asked %v", s.asked)
	}
}

// TestAnErrorKeepsTheConversation: the message that failed is dropped; the session goes on for a person
// and ends in a pipe.
func TestAnErrorKeepsTheConversation(t *testing.T) {
	s := serve(t, "fail")
	session, _, errs := s.session()
	if err := session.Run(t.Context(), &typed{"Hello"}); err != nil || len(session.Messages) != 0 || !strings.Contains(errs.String(), "want 0 to 2") {
		t.Errorf("%v, %v, %q", err, session.Messages, errs)
	}
	if err := session.Run(t.Context(), NewPipe(strings.NewReader("Hello"))); err == nil || !strings.Contains(err.Error(), "want 0 to 2") {
		t.Errorf("in a pipe the error is %v", err)
	}
	session.Messages = []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
	if err := session.Run(t.Context(), &typed{"/retry"}); err != nil || len(session.Messages) != 2 {
		t.Errorf("after a retry that failed: %v, %v", err, session.Messages)
	}
}

// TestAnInterruptStopsTheAnswer and not the session; the partial answer stays in the conversation.
func TestAnInterruptStopsTheAnswer(t *testing.T) {
	s := serve(t, "Once upon", "wait")
	session, out, errs := s.session()
	interrupts := make(chan os.Signal)
	session.Interrupts = interrupts
	seen := &notify{Buffer: out, text: "Once upon", found: make(chan bool, 9)}
	session.Out = seen
	go func() {
		<-seen.found
		interrupts <- os.Interrupt
	}()
	if err := session.Run(t.Context(), &typed{"A story", "/stats"}); err != nil {
		t.Fatal(err)
	}
	if len(session.Messages) != 2 || session.Messages[1].Content != "Once upon" || out.String() != "Once upon\n" || !strings.Contains(errs.String(), "stopped") {
		t.Errorf("%v, %q, %q", session.Messages, out, errs)
	}
}

// notify tells when a text was written.
type notify struct {
	*bytes.Buffer
	text  string
	found chan bool
}

func (n *notify) Write(p []byte) (int, error) {
	defer func() {
		if strings.Contains(n.String(), n.text) {
			select {
			case n.found <- true:
			default:
			}
		}
	}()
	return n.Buffer.Write(p)
}

// TestAModelCannotDriveTheTerminal: escape sequences would write the clipboard or the title, or hide text.
// A pipe gets the text as it is.
func TestAModelCannotDriveTheTerminal(t *testing.T) {
	attack := "a\x1b]52;c;aGk=\x07b\x1b[2Jc\u009b1md\re\x08f\tg\nh"
	for _, fancy := range []bool{true, false} {
		s := serve(t, "think:\x1b[31mred", attack)
		session, out, _ := s.session()
		session.Fancy, session.Plain = fancy, true
		if err := session.Run(t.Context(), &typed{"Hello"}); err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(out.String(), "\r\x1b[K", "") // which erases the news
		want := attack + "\n"
		if fancy {
			want = "loading 1 of 2 blocks[31mred\n\na]52;c;aGk=b[2Jc1mdef\tg\nh\n"
		}
		if got != want {
			t.Errorf("on a terminal %v: %q, want %q", fancy, got, want)
		}
	}
}

func TestSaveAndLoad(t *testing.T) {
	s := serve(t, "Yes.")
	file := filepath.Join(t.TempDir(), "chat.json")
	session, _, _ := s.session()
	if err := session.Run(t.Context(), &typed{"/system Be brief.", "/set top_k 4", "One?", "/save " + file}); err != nil {
		t.Fatal(err)
	}
	other, _, errs := s.session()
	if err := other.Run(t.Context(), &typed{"/load " + file, "Two?"}); err != nil {
		t.Fatal(err)
	}
	if got, want := messages(s.asked[1]), "system: Be brief.; user: One?; assistant: Yes.; user: Two?"; got != want || s.asked[1]["top_k"] != 4.0 {
		t.Errorf("after loading it asks %q with %v, want %q: %s", got, s.asked[1], want, errs)
	}
	if err := os.WriteFile(file, []byte(`{"messages": [{"role": "tool", "content": "x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	errs.Reset()
	if err := other.Run(t.Context(), &typed{"/load " + file}); err != nil || !strings.Contains(errs.String(), `message 0: got role "tool"`) || len(other.Messages) != 4 {
		t.Errorf("%v, %q, %v", err, errs, other.Messages)
	}
}

// TestAConnectionThatBreaksOffIsAnError, not a short answer.
func TestAConnectionThatBreaksOffIsAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n")
	}))
	defer s.Close()
	_, err := (&Client{URL: s.URL}).Complete(context.Background(), "", nil, nil, func(Delta) {})
	if err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("the error is %v", err)
	}
}

// TestAServerThatSendsWithoutEndTookAllMemory: an event or an answer of any length was kept.
func TestAServerThatSendsWithoutEndTookAllMemory(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := `data: {"a": "`
		if r.Method == http.MethodGet {
			begin = `{"data": [`
		}
		_, err := io.WriteString(w, begin)
		for piece := strings.Repeat(" ", 1<<20); err == nil; {
			_, err = io.WriteString(w, piece)
		}
	}))
	defer s.Close()
	c := &Client{URL: s.URL}
	if _, err := c.Complete(t.Context(), "", nil, nil, func(Delta) {}); err == nil || !strings.Contains(err.Error(), "an event of more than") {
		t.Errorf("a stream: %v", err)
	}
	if _, err := c.Models(t.Context()); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a list: %v", err)
	}
}

// A fullDisk is an output whose disk is full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// TestAnAnswerThatCannotBeWrittenIsAnError: it was lost, with status 0, and the model went on to the end.
func TestAnAnswerThatCannotBeWrittenIsAnError(t *testing.T) {
	s := serve(t, "Yes", "wait")
	session, _, _ := s.session()
	session.Out = fullDisk{}
	err := session.Run(t.Context(), NewPipe(strings.NewReader("Is it?\n")))
	if err == nil || err.Error() != "the disk is full" || len(session.Messages) > 0 {
		t.Errorf("got %v and %v", err, session.Messages)
	}
}

// TestAWrongKeyNamesTheFlag: the error of serve chat and serve ps had the server's advice on HTTP headers alone.
func TestAWrongKeyNamesTheFlag(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": {"message": "Incorrect API key."}}`)
	}))
	defer s.Close()
	_, err := (&Client{URL: s.URL}).Complete(t.Context(), "", nil, nil, func(Delta) {})
	if err == nil || err.Error() != "Incorrect API key. Use --api-key KEY or HEFT_API_KEY." {
		t.Errorf("got %v", err)
	}
}

// TestLoadingAFileThatIsNoConversationKeepsTheOneThatThereIs: JSON without messages emptied it, and other JSON had an error
// with the type of a Go struct and without the file.
func TestLoadingAFileThatIsNoConversationKeepsTheOneThatThereIs(t *testing.T) {
	s := serve(t, "Yes.")
	session, _, errs := s.session()
	file := filepath.Join(t.TempDir(), "other.json")
	for text, want := range map[string]string{
		`{"model": "m"}`:     "got no messages",
		`null`:               "got no messages",
		`[{"role": "user"}]`: "got JSON of type array, want an object with messages",
		`{"messages": [{"role": "user", "content": ["x"]}]}`: "messages.content: got JSON of type array, want text",
		`{"messages": 5}`: "messages: got JSON of type number",
		`{`:               "unexpected end",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		errs.Reset()
		session.Messages = []Message{{Role: "user", Content: "One?"}, {Role: "assistant", Content: "Yes."}}
		err := session.Run(t.Context(), &typed{"/load " + file})
		if got := errs.String(); err != nil || !strings.Contains(got, want) || !strings.Contains(got, "/load: "+file) || len(session.Messages) != 2 {
			t.Errorf("%s: %v, %q with %d messages, want %q and the 2 of before", text, err, got, len(session.Messages), want)
		}
	}
}

// TestLoadOfADeviceReadWithoutEnd: /load /dev/zero took all memory, and a pipe waited for ever.
func TestLoadOfADeviceReadWithoutEnd(t *testing.T) {
	s := serve(t, "Yes.")
	session, _, errs := s.session()
	testenv.Need(t, "devices", fileExists("/dev/zero"), "a system with /dev/zero")
	if err := session.Run(t.Context(), &typed{"/load /dev/zero"}); err != nil || !strings.Contains(errs.String(), "/load: ") || !strings.Contains(errs.String(), "not a regular file") {
		t.Errorf("%v, %q", err, errs.String())
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
