"""The pods of every tier: who is up, who agrees, who is asked, and how."""
