package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestMethodNotAllowedSaysWhichAre: RFC 9110 wants the header Allow in a 405.
func TestMethodNotAllowedSaysWhichAre(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for request, want := range map[string]string{
		"GET " + chat: "POST", "OPTIONS /tokenize": "POST", "DELETE /v1/models": "GET, HEAD", "POST /health": "GET, HEAD", "PUT /v1/models/a/b": "GET, HEAD",
	} {
		method, path, _ := strings.Cut(request, " ")
		resp := s.do(method, path, nil)
		if got := resp.Header.Get("Allow"); resp.StatusCode != http.StatusMethodNotAllowed || got != want {
			t.Errorf("%s: got %d, Allow %q, want %q", request, resp.StatusCode, got, want)
		}
	}
}

// TestWebSocketsAreToldToUseHTTP: they were a plain 405 and 404, after which Codex tried five times more.
func TestWebSocketsAreToldToUseHTTP(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for path, want := range map[string]string{
		"/v1/responses": `426 websocket_not_supported send POST /v1/responses over HTTP`, "/v1/messages": `426 invalid_request_error send POST /v1/messages over HTTP`,
		"/api/chat": `426 {"error":"The server has no WebSockets: send POST /api/chat over HTTP`, "/v1/realtime?model=m": `404 invalid_request_error use POST /v1/responses with \"stream\": true. The server has no WebSockets.`, "/health": `200 ok`,
	} {
		r, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got := strconv.Itoa(resp.StatusCode) + " " + readAll(t, resp)
		for _, part := range strings.SplitN(want, " ", 3) {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %s, want %q", path, got, part)
			}
		}
		if up := resp.Header.Get("Upgrade"); (up == "HTTP/1.1") != (resp.StatusCode == http.StatusUpgradeRequired) {
			t.Errorf("%s: status %d with Upgrade %q", path, resp.StatusCode, up)
		}
	}
}

// TestUnknownMethodsOfUnknownPathsAre404: they were a 405 whose header Allow was empty.
func TestUnknownMethodsOfUnknownPathsAre404(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for request, want := range map[string]int{"BREW /nowhere": http.StatusNotFound, "BREW /health": http.StatusMethodNotAllowed} {
		method, path, _ := strings.Cut(request, " ")
		if resp := s.do(method, path, nil); resp.StatusCode != want || (resp.Header.Get("Allow") != "") != (want == http.StatusMethodNotAllowed) {
			t.Errorf("%s: got %d, Allow %q, want %d", request, resp.StatusCode, resp.Header.Get("Allow"), want)
		}
	}
}

// TestCompressedBodiesWereReadAsJSON: they were a 400 about a strange character. The answer names the unsupported
// encoding, in the shape of each dialect.
func TestCompressedBodiesWereReadAsJSON(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for path, want := range map[string]string{chat: "unsupported_content_encoding", "/v1/responses": "unsupported_content_encoding", "/v1/messages": "invalid_request_error", "/api/chat": "gzip"} {
		for encoding, refused := range map[string]bool{"gzip": true, "identity, br": true, "Identity": false, "": false} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader("\x1f\x8b"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Encoding", encoding)
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || (resp.StatusCode == http.StatusUnsupportedMediaType) != refused {
				t.Errorf("%s, encoding %q: got status %d, %v", path, encoding, resp.StatusCode, err)
			}
			if encoding == "gzip" && (!strings.Contains(string(body), want) || !strings.Contains(string(body), "uncompressed")) {
				t.Errorf("%s: got %s, want %s and what to do", path, body, want)
			}
		}
	}
}

// TestXAPIKeyIsAKeyOnEveryPath: clients of other dialects send it in place of Authorization.
func TestXAPIKeyIsAKeyOnEveryPath(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "first", "second")
	for _, c := range []struct {
		header string
		fits   bool
	}{
		{"X-API-Key: first", true}, {"x-api-key: second", true}, {"X-API-Key: third", false}, {"X-API-Key: ", false},
		{"Authorization: Bearer third\nX-API-Key: first", true}, {"Authorization: Basic first", false}, {"Authorization: first", false},
		{"X-API-Key: Bearer first", false}, {"Authorization: Bearer first\nX-API-Key: third", true},
	} {
		for _, request := range []string{"GET /v1/models", "GET /plan", "POST " + completions, "POST /tokenize", "POST /v1/embeddings", "GET /nowhere"} {
			method, path, _ := strings.Cut(request, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			setHeaders(r, c.header)
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if (resp.StatusCode != http.StatusUnauthorized) != c.fits {
				t.Errorf("%s with %q: got %d", request, c.header, resp.StatusCode)
			}
		}
	}
}

// TestMalformedChunksAre400: they were a 499, as if the client had disconnected.
func TestMalformedChunksAre400(t *testing.T) {
	address := accessible(t, api.Access{}, "127.0.0.1")
	const header = "POST " + completions + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, body := range map[string]string{
		"no number": "zz\r\n{}\r\n0\r\n\r\n", "negative": "-1\r\n{}\r\n0\r\n\r\n", "longer than it says": "2\r\n{}{}\r\n0\r\n\r\n",
		"too large a number": "fffffffffffffffff\r\n{}\r\n0\r\n\r\n", "a line without end": strings.Repeat("1", 5000),
	} {
		if resp, text := say(t, address, header+body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: got %d, %s", name, resp.StatusCode, text)
		}
	}
}

// TestOversizeAnnouncedBodiesAre413AtOnce: before a byte of the body has come.
func TestOversizeAnnouncedBodiesAre413AtOnce(t *testing.T) {
	address := accessible(t, api.Access{}, "127.0.0.1")
	for _, extra := range []string{"", "Expect: 100-continue\r\n"} {
		resp, text := say(t, address, "POST "+completions+" HTTP/1.1\r\nHost: localhost\r\n"+extra+"Content-Length: 33554433\r\n\r\n")
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "request_too_large") || !resp.Close {
			t.Errorf("%q: got %d, close %t, %s", extra, resp.StatusCode, resp.Close, text)
		}
	}
}

// TestClientsThatSendBeforeTheyReadGetThe413: they saw a broken pipe, as the connection was closed
// while they sent their body.
func TestClientsThatSendBeforeTheyReadGetThe413(t *testing.T) {
	address := accessible(t, api.Access{}, "127.0.0.1")
	const size = 33 << 20
	resp, text := say(t, address, "POST "+completions+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n"+strings.Repeat("a", size))
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "request_too_large") {
		t.Errorf("got %d, %s", resp.StatusCode, text)
	}
}

// TestContinuousUsageIsInEveryChunk: vLLM's stream_options.continuous_usage_stats.
func TestContinuousUsageIsInEveryChunk(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	for path, body := range map[string]obj{
		completions: {"prompt": []string{"a b c", "d"}}, chat: {"messages": hello},
	} {
		body["max_tokens"], body["ignore_eos"], body["return_token_ids"], body["n"] = 5, true, true, 2
		body["stream_options"] = obj{"include_usage": true, "continuous_usage_stats": true}
		data := s.stream(path, body)
		sum, before := 0, -1
		last := at(parse(t, data[len(data)-2]), "usage")
		for _, d := range data[:len(data)-2] {
			chunk := parse(t, d)
			list, _ := at(chunk, "choices", 0, "token_ids").([]any)
			sum += len(list)
			u := at(chunk, "usage")
			if at(u, "completion_tokens") != num(sum) || at(u, "prompt_tokens") != at(last, "prompt_tokens") {
				t.Errorf("%s: usage %v after %d tokens", path, u, sum)
			}
			before = sum
		}
		if at(last, "completion_tokens") != num(before) || at(last, "prompt_tokens_details") == nil {
			t.Errorf("%s: the last usage is %v after %d tokens", path, last, before)
		}
		body["stream_options"] = obj{"continuous_usage_stats": true}
		for _, d := range s.stream(path, body) {
			if strings.Contains(d, `"usage"`) {
				t.Errorf("%s: usage without include_usage: %s", path, d)
			}
		}
	}
}

func num(n int) json.Number { b, _ := json.Marshal(n); return json.Number(b) }
