package telegramtest

import "net/http"

type page struct{ s *Server }

func newPage(s *Server) *page { return &page{s} }

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.s.ServeTools(w, r, p.s.opt.Token) {
		return
	}
	http.NotFound(w, r)
}
