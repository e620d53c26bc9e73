"""Written for another major version: it uses names that are gone."""

from opgraft.api import a_name_of_api_zero

API = (0, 9)

print(a_name_of_api_zero)
