package messages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/messages"
)

func ExampleServer() {
	s := messages.New(generate.NewModels(&generate.Model{Name: "m"}))
	w := httptest.NewRecorder()
	s.Create(w, httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(`{"model": "none"}`)))
	fmt.Println(w.Code, w.Body)
	// Output: 404 {"type":"error","error":{"type":"not_found_error","message":"The model `none` does not exist: GET /v1/models lists those that do."},"request_id":null}
}
