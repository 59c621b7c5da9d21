"""The Digital Twin's side: which records are followed, what becomes of them, and what is asked of the gNB."""
