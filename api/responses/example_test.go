package responses_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/store"
)

func ExampleServer() {
	m := &generate.Model{Name: "m"}
	s := responses.New(generate.NewModels(m), store.NewMemory(1<<20, nil))
	r := httptest.NewRequest(http.MethodGet, "/v1/responses/resp_1", nil)
	r.SetPathValue("id", "resp_1") // as the route "/v1/responses/{id}" does
	w := httptest.NewRecorder()
	s.Retrieve(w, r)
	fmt.Println(w.Code, w.Body)
	// Output: 404 {"error":{"message":"Response with id 'resp_1' not found.","type":"invalid_request_error","param":null,"code":null}}
}
