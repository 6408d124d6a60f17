package nettest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/nettest"
)

func TestRefusedRefusesAndStaysTaken(t *testing.T) {
	addr := nettest.Refused(t)
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting gave %v, %v", c, err)
	}
	if l, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening gave %v, %v", l, err)
	}
}
