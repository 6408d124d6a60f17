package slacktest

import (
	"slices"
	"strings"
)

// SetGroup makes a user group with its members, or changes who they are.
func (s *Server) SetGroup(id string, members ...string) {
	s.Write(func() {
		if s.groups == nil {
			s.groups = map[string][]string{}
		}
		s.groups[id] = slices.Clone(members)
	})
}

// Group is the members of a user group.
func (s *Server) Group(id string) (members []string) {
	s.Read(func() { members = slices.Clone(s.groups[id]) })
	return members
}

// SetUser changes a person of the workspace, or takes in another one.
func (s *Server) SetUser(u User) {
	s.Write(func() {
		for i := range s.users {
			if s.users[i].ID == u.ID {
				*s.users[i] = u
				return
			}
		}
		s.users = append(s.users, &u)
	})
}

func (s *Server) usergroupsUsersUpdate(c *call) obj {
	id := c.get("usergroup")
	if _, known := s.groups[id]; !known {
		return failure("no_such_subteam")
	}
	members := strings.FieldsFunc(c.get("users"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(members) == 0 {
		return failure("no_users_provided")
	}
	for _, m := range members {
		if u := s.user(m); u == nil || u.Deactivated {
			return failure("invalid_users")
		}
	}
	s.groups[id] = members
	return obj{"ok": true, "usergroup": obj{"id": id, "team_id": s.opt.TeamID, "users": members, "user_count": len(members)}}
}
